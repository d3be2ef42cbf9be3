// Integer reductions that need more than the integer's own arithmetic: averages, and factors other than 1.
//
// Sums are computed in 128 bits for 64-bit types and in 64 bits for others, so that no sum of an average overflows. An
// average is the sum divided by n, rounded toward zero. Each factor rounds once (exact_scaling.hpp) and saturates to
// the element type: prescale applies to each input; postscale applies to a sum or product after it has wrapped, and to
// the sum of an average before the division, so that sum * postscale / n is rounded once. Pure; any thread; cannot
// fail.
//
// Called by kernels.hpp.
#pragma once

#include <cstddef>
#include <span>

#include "base/reduction.hpp"

namespace ciranda::kernels {

// REQUIRES: as for reduce(), and reduction.dtype is an integer type.
void reduce_scaled_integers(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count);

}  // namespace ciranda::kernels
