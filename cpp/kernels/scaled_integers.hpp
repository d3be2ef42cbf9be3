// Integer reductions that need more than the integer's own arithmetic: averages, and factors other than 1.
//
// Inputs are added up in as many bits as no average can exceed: 128 of 64-bit types, 64 of others. An average is their
// sum over n, toward zero. Each factor makes one rounding (exact_scaling.hpp) and saturates to the element type: that
// of inputs on every input, and that of the result on what has wrapped (sums, products) or on the sum, before it is
// divided (averages: sum * postscale / n is rounded once). Pure; any thread; cannot fail.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/reduction.hpp"

namespace ciranda::kernels {

// REQUIRES: those of reduce(), and reduction.dtype is an integer.
void reduce_scaled_integers(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count);

}  // namespace ciranda::kernels
