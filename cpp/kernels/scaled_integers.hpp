// Integer reductions that need more than the integer's own arithmetic: averages, and factors other than 1.
//
// Each input is widened to 64 bits and reduced there, wrapping. Each scaling is computed in double, rounded toward zero
// and saturated to the element type (NaN, from a factor of infinity or NaN, gives 0). An average with postscale 1 is
// an exact division; else it is double(sum) * postscale / n_average, scaled as above. Pure; any thread; cannot fail.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/kernels.hpp"

namespace ciranda::kernels {

// REQUIRES: those of reduce(), and reduction.dtype is an integer.
void reduce_scaled_integers(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count);

}  // namespace ciranda::kernels
