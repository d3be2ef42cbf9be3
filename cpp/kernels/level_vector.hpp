// Lanes: what the elements of one vector register do under each operator.
//
// Included by level_*.cc only. The same source is compiled for several instruction sets, so nothing here may have
// external linkage: a linker that merged an AVX-512 copy of an inline function into code that an older CPU runs would
// crash it. Hence the unnamed namespace, and no calls of functions from shared headers, std included. A test lists the
// symbols of the objects and fails on any that could be merged.
//
// A level describes itself by a type L in its own unnamed namespace:
//   L::kVectorBytes   width of a register
//   L::HalfCodec      fp16 <-> fp32 for two registers of floats (see level_codecs.hpp)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/reduce_op.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point, see above

template <std::size_t kBytes, class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));  // NOLINT(modernize-use-using): using ignores the attribute
};

// Integers. Sums and products are asked of unsigned T only, so that they wrap.
template <class L, class T>
struct IntegerLanes {
  using Scalar = T;
  using Vector = typename VectorOf<L::kVectorBytes, T>::Type;

  template <ReduceOp kOp>
  [[gnu::always_inline]] static inline Vector combine(Vector a, Vector b) {
    if constexpr (kOp == ReduceOp::kSum) return a + b;
    if constexpr (kOp == ReduceOp::kProduct) return a * b;
    if constexpr (kOp == ReduceOp::kMin) return a < b ? a : b;
    if constexpr (kOp == ReduceOp::kMax) return a > b ? a : b;
  }
};

// Floating point; Bits is the signed integer of the same width.
template <class L, class T, class Bits, Bits kQuietNan>
struct FloatLanes {
  using Scalar = T;
  using Vector = typename VectorOf<L::kVectorBytes, T>::Type;
  using BitsVector = typename VectorOf<L::kVectorBytes, Bits>::Type;

  [[gnu::always_inline]] static inline BitsVector bits(Vector v) { return reinterpret_cast<BitsVector>(v); }
  [[gnu::always_inline]] static inline Vector from_bits(BitsVector v) { return reinterpret_cast<Vector>(v); }

  // x86 gives a NaN result the payload of its first NaN operand, and compilers commute operands: only whether a
  // result is NaN is well defined. So every NaN that leaves is the same one.
  [[gnu::always_inline]] static inline Vector canonical(Vector v) {
    return v == v ? v : from_bits(BitsVector{} + kQuietNan);
  }

  // min: both selections agree unless a == b or one is NaN. Then they are b and a, and b | a is -0 if either zero is,
  // and NaN if either is NaN. max likewise with &, which could clear a NaN: put back by the unordered mask.
  template <ReduceOp kOp>
  [[gnu::always_inline]] static inline Vector combine(Vector a, Vector b) {
    if constexpr (kOp == ReduceOp::kSum) return a + b;
    if constexpr (kOp == ReduceOp::kProduct) return a * b;
    if constexpr (kOp == ReduceOp::kMin) return from_bits(bits(a < b ? a : b) | bits(b < a ? b : a));
    if constexpr (kOp == ReduceOp::kMax) {
      const BitsVector larger = bits(a > b ? a : b) & bits(b > a ? b : a);
      return from_bits(larger | ~((a == a) & (b == b)));
    }
  }
};

template <class L>
using Float32Lanes = FloatLanes<L, float, std::int32_t, 0x7FC00000>;
template <class L>
using Float64Lanes = FloatLanes<L, double, std::int64_t, 0x7FF8000000000000>;

}  // namespace
}  // namespace ciranda::kernels
