// Lanes: the operators on the elements of one vector register.
//
// Included by level_*.cc only. The same source is compiled for several instruction sets, so nothing here may have
// external linkage: a linker could merge the copies of an inline function, and an older CPU would crash in the AVX-512
// copy. Hence the unnamed namespace, and no calls of functions from shared headers, std included. A test lists the
// symbols of the objects and fails on any that could be merged.
//
// A level is a type L in the unnamed namespace of its file:
//   L::kVectorBytes   width of a register
//   L::HalfCodec      converts between fp16 and fp32, two registers of floats at a time (see level_codecs.hpp)
//
// Called by level_codecs.hpp and level_kernel.hpp; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/reduce_op.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point, see above

template <std::size_t kBytes, class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));  // NOLINT(modernize-use-using): using ignores the attribute
};

// Integers. Sums, products and bitwise operators are used with unsigned T only, so that they wrap.
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
    if constexpr (kOp == ReduceOp::kBitwiseAnd) return a & b;
    if constexpr (kOp == ReduceOp::kBitwiseOr) return a | b;
    if constexpr (kOp == ReduceOp::kBitwiseXor) return a ^ b;
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

  // On x86 a NaN result has the payload of the first NaN operand, and compilers may swap operands, so the payload is
  // unpredictable. Therefore every NaN is replaced by the same NaN.
  [[gnu::always_inline]] static inline Vector canonical(Vector v) {
    return v == v ? v : from_bits(BitsVector{} + kQuietNan);
  }

  // min: both selections are equal unless a == b or an operand is NaN. Otherwise they are b and a, and b | a is -0 if
  // one of two zeros is -0, and NaN if an operand is NaN. max uses &, which could clear a NaN: the mask of unordered
  // operands restores it.
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

// Complex numbers: real and imaginary parts alternate. Sums are computed as sums of floats, so only products are needed
// here: (a + bi)(c + di) = (ac - bd) + (ad + bc)i, each product and sum rounded once.
template <class Parts>
struct ComplexLanes : Parts {
  using Vector = typename Parts::Vector;
  using BitsVector = typename Parts::BitsVector;
  using Scalar = typename Parts::Scalar;
  using Lanes = std::make_index_sequence<sizeof(Vector) / sizeof(Scalar)>;

  template <ReduceOp kOp>
  [[gnu::always_inline]] static inline Vector combine(Vector a, Vector b) {
    static_assert(kOp == ReduceOp::kProduct);
    return product(a, b, Lanes{});
  }

 private:
  template <std::size_t... kLane>
  [[gnu::always_inline]] static inline Vector product(Vector x, Vector y, std::index_sequence<kLane...> /*lanes*/) {
    using Bits = decltype(BitsVector{}[0] + 0);
    constexpr auto kSign = static_cast<Bits>(Bits{1} << (sizeof(Scalar) * 8 - 1));
    constexpr BitsVector kNegatesReal{(kLane % 2 == 0 ? kSign : Bits{0})...};
    const Vector real = __builtin_shufflevector(x, x, (kLane & ~std::size_t{1})...);
    const Vector imaginary = __builtin_shufflevector(x, x, (kLane | 1)...);
    const Vector swapped = __builtin_shufflevector(y, y, (kLane ^ 1)...);
    return real * y + Parts::from_bits(Parts::bits(imaginary * swapped) ^ kNegatesReal);
  }
};

}  // namespace
}  // namespace ciranda::kernels
