// The only code that does arithmetic on tensor elements.
//
// Every kernel is a pure function of its arguments: no state, no allocation, callable from any thread. Inputs need no
// alignment. Results are bit-identical at every SIMD level, for every split of a range into calls, and for every
// alignment: an element's result depends only on its n inputs in rank order, the dtype, the op, the two factors and the
// divisor.
//
// Order: inputs are combined in the left-complete binary tree over their positions: the left part of every range is
// the largest power of two that leaves something to the right, so seven inputs are ((x0 x1) (x2 x3)) ((x4 x5) x6).
// fp16 and bf16 are computed in fp32 throughout and rounded once, to nearest even. Floats, each step rounded once:
// input
// * prescale (of a sum with weights * (prescale * weight), a product of doubles), the tree, / n for an average,
// * postscale; factors are rounded to the type that is computed in. Integer sums and products wrap; integer averages do
// not, and round toward zero (scaled_integers.hpp: averages and factors of integers). bool has min = and, max = or, and
// ignores factors. min and max propagate NaN; -0 < +0. Complex numbers are summed, scaled and divided part by part; a
// product is (ac - bd) + (ad + bc)i, each product and sum rounded once. A NaN result (of a part) is always the type's
// quiet, positive NaN without payload; but one input that needs no scaling is copied as it is.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.hpp"
#include "kernels/reduction.hpp"
#include "kernels/simd_level.hpp"

namespace ciranda::kernels {

std::string_view to_string(SimdLevel level);
SimdLevel best_simd_level();           // what this CPU can do
SimdLevel active_simd_level();         // what the kernels use now
void set_simd_level(SimdLevel level);  // clamped to best_simd_level(); for tests and CIRANDA_SIMD

// out[i] = postscale * op(prescale * inputs[0][i], prescale * inputs[1][i], ...) for i in [0, count), with
// prescale * weights[k] for input k where there are weights. One pass over memory, whatever the factors are.
// out may be one of the inputs (exactly equal, not merely overlapping).
// REQUIRES: accepts(reduction.op, reduction.dtype), and the op is elementwise; factors are 1 where the op does not
// accept them, and finite for integers; n_average >= 1; weights only for sums of floating or complex types, as many as
// inputs; inputs is not empty; each input and out has count elements.
void reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count);
// As many elements as `out` has room for.
inline void reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::span<std::byte> out) {
  reduce(reduction, inputs, out.data(), out.size() / size_of(reduction.dtype));
}

}  // namespace ciranda::kernels
