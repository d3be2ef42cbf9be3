// The only code that does arithmetic on tensor elements in host memory. That of GPUs, backend/cuda/kernels, gives the
// same bits.
//
// Every kernel is a pure function of its arguments: no state, no allocation, callable from any thread. Inputs need no
// alignment. Results are bit-identical at every SIMD level, for every split of a range into calls, and for every
// alignment: an element's result depends only on its n inputs in rank order, the dtype, the op, the two factors and the
// divisor.
//
// Order: inputs are combined in a left-complete binary tree over their positions. The left part of every range is the
// largest power of two smaller than the range, so seven inputs are ((x0 x1) (x2 x3)) ((x4 x5) x6).
// Floating point: each input is multiplied by prescale (in a sum with weights by prescale * weight, a product of
// doubles), the tree combines the inputs, an average is divided by n, and the result is multiplied by postscale. Each
// step rounds once, and factors are rounded to the type of the computation. fp16 and bf16 are computed in fp32
// throughout and rounded once, to nearest even. min and max propagate NaN; -0 < +0. A NaN result is always the type's
// quiet, positive NaN without payload; but a single input without scaling is copied as it is.
// Complex numbers: sums, factors and divisors apply to each part, and each part is canonical if NaN. A product is
// (ac - bd) + (ad + bc)i, each product and sum rounded once.
// Integers: sums and products wrap; averages do not wrap, and round toward zero (scaled_integers.hpp).
// bool: min is and, max is or; factors are ignored.
//
// Called by collective/, NativeBackend and DirectTensor, and through that by execute/collectives/; by
// bfloat16_wire.hpp, connect() and bindings/python/tables.cc for the SIMD level.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/dtype.hpp"
#include "base/exported.hpp"
#include "base/reduction.hpp"
#include "kernels/simd_level.hpp"

namespace ciranda::kernels {

CIRANDA_EXPORTED std::string_view to_string(SimdLevel level);
CIRANDA_EXPORTED SimdLevel best_simd_level();           // the highest that this CPU supports
CIRANDA_EXPORTED SimdLevel active_simd_level();         // the level that the kernels use now
CIRANDA_EXPORTED void set_simd_level(SimdLevel level);  // clamped to best_simd_level(); for tests and CIRANDA_SIMD

// out[i] = postscale * op(prescale * inputs[0][i], prescale * inputs[1][i], ...) for i in [0, count). With weights, the
// factor of input k is prescale * weights[k]. One pass over memory, whatever the factors are.
// out may be one of the inputs (exactly equal, not merely overlapping).
// REQUIRES: accepts(reduction.op, reduction.dtype), and the op is elementwise; factors are 1 where the op does not
// accept them, and finite for integers; n_average >= 1; weights only for sums of floating or complex types, as many as
// inputs; inputs is not empty; each input and out has count elements.
void reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count);
// Reduces as many elements as fit into `out`.
inline void reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::span<std::byte> out) {
  reduce(reduction, inputs, out.data(), out.size() / size_of(reduction.dtype));
}

}  // namespace ciranda::kernels
