// Codecs: they convert one chunk of a tensor into two registers of lanes, and back.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold. A codec has
//   Lanes, Scalar     the types of the computation
//   kChunkBytes       the number of tensor bytes that fill the two registers
//   kFloating         whether factors apply and NaN results are made canonical
//   load, store       for any alignment
//
// Called by level_convert.hpp, level_kernel.hpp and level_reduce.hpp; pure.
#pragma once

#include "kernels/level_vector.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

template <class LanesT>
struct Pair {
  typename LanesT::Vector a, b;
};

template <class V>
[[gnu::always_inline]] inline void load_vector(const std::byte* from, V& to) {
  __builtin_memcpy(&to, from, sizeof(V));
}

template <class V>
[[gnu::always_inline]] inline void store_vector(std::byte* to, const V& from) {
  __builtin_memcpy(to, &from, sizeof(V));
}

// For element types that are also the type of the computation.
template <class L, class LanesT, bool kIsFloating>
struct PlainCodec {
  using Lanes = LanesT;
  using Scalar = typename Lanes::Scalar;
  static constexpr std::size_t kChunkBytes = 2 * L::kVectorBytes;
  static constexpr bool kFloating = kIsFloating;

  [[gnu::always_inline]] static inline Pair<Lanes> load(const std::byte* from) {
    Pair<Lanes> pair;
    load_vector(from, pair.a);
    load_vector(from + L::kVectorBytes, pair.b);
    return pair;
  }
  [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Lanes>& pair) {
    store_vector(to, pair.a);
    store_vector(to + L::kVectorBytes, pair.b);
  }
};

// Loads any non-zero byte as true; stores 0 or 1.
template <class L>
struct BoolCodec : PlainCodec<L, IntegerLanes<L, std::uint8_t>, false> {
  using Base = PlainCodec<L, IntegerLanes<L, std::uint8_t>, false>;
  using Lanes = typename Base::Lanes;

  [[gnu::always_inline]] static inline Pair<Lanes> load(const std::byte* from) {
    const typename Lanes::Vector one = typename Lanes::Vector{} + std::uint8_t{1};
    const Pair<Lanes> raw = Base::load(from);
    return {Lanes::template combine<ReduceOp::kMin>(raw.a, one), Lanes::template combine<ReduceOp::kMin>(raw.b, one)};
  }
};

// Two 16-bit floats are loaded as one 32-bit word: register a takes the low halves and b the high halves, which needs
// no shuffle. store() puts each half back in its place.

// bfloat16 is the upper half of a float.
template <class L>
struct BFloat16Codec {
  using Lanes = Float32Lanes<L>;
  using Scalar = float;
  using Vector = typename Lanes::Vector;
  using Words = typename VectorOf<L::kVectorBytes, std::uint32_t>::Type;
  static constexpr std::size_t kChunkBytes = L::kVectorBytes;
  static constexpr bool kFloating = true;

  [[gnu::always_inline]] static inline Pair<Lanes> load(const std::byte* from) {
    Words words;
    load_vector(from, words);
    return {reinterpret_cast<Vector>(words << 16), reinterpret_cast<Vector>(words & 0xFFFF0000U)};
  }
  // REQUIRES: NaNs are canonical; in others, rounding could carry into the exponent or the sign.
  [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Lanes>& pair) {
    store_vector(to, (rounded(pair.a) >> 16) | (rounded(pair.b) & 0xFFFF0000U));
  }

 private:
  // To nearest even, in the upper half; the lower half is left undefined.
  [[gnu::always_inline]] static inline Words rounded(Vector v) {
    const Words words = reinterpret_cast<Words>(v);
    return words + ((words >> 16) & 1U) + 0x7FFFU;
  }
};

// fp16 by integer arithmetic, for levels without conversion instructions. Exact, subnormals included.
template <class L>
struct HalfByBits {
  using Lanes = Float32Lanes<L>;
  using Vector = typename Lanes::Vector;
  using Words = typename VectorOf<L::kVectorBytes, std::uint32_t>::Type;
  using Ints = typename Lanes::BitsVector;

  [[gnu::always_inline]] static inline Pair<Lanes> load(const std::byte* from) {
    Words words;
    load_vector(from, words);
    return {widened(words & 0xFFFFU), widened(words >> 16)};
  }
  [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Lanes>& pair) {
    store_vector(to, narrowed(pair.a) | (narrowed(pair.b) << 16));
  }

 private:
  // Works on the bits of a float as an integer. An addition changes the exponent's bias. A subnormal half gets the
  // exponent of 2^-14, and then 2^-14 is subtracted.
  [[gnu::always_inline]] static inline Vector widened(Words half) {
    const Words magnitude = (half & 0x7FFFU) << 13;
    const Words exponent = magnitude & 0x0F800000U;
    const Words normal = magnitude + 0x38000000U;
    const Words infinite = normal + 0x38000000U;
    const Words smallest = Words{} + 0x38800000U;
    const Words subnormal =
        reinterpret_cast<Words>(reinterpret_cast<Vector>(normal + 0x00800000U) - reinterpret_cast<Vector>(smallest));
    const Words bits = exponent == 0U ? subnormal : (exponent == 0x0F800000U ? infinite : normal);
    return reinterpret_cast<Vector>(bits | ((half & 0x8000U) << 16));
  }

  // REQUIRES: NaNs are canonical. By adding 0.5 to a subnormal result, the FPU rounds it at the right bit.
  [[gnu::always_inline]] static inline Words narrowed(Vector v) {
    const Words bits = reinterpret_cast<Words>(v);
    const Words magnitude = bits & 0x7FFFFFFFU;
    const Ints order = reinterpret_cast<Ints>(magnitude);
    const Words half = Words{} + 0x3F000000U;
    const Words subnormal =
        reinterpret_cast<Words>(reinterpret_cast<Vector>(magnitude) + reinterpret_cast<Vector>(half)) - half;
    const Words normal = (magnitude - 0x38000000U + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
    const Words special = order > 0x7F800000 ? Words{} + 0x7E00U : Words{} + 0x7C00U;
    const Words rounded = order < 0x38800000 ? subnormal : (order >= 0x47800000 ? special : normal);
    return rounded | ((bits >> 16) & 0x8000U);
  }
};

template <class L>
struct Float16Codec : L::HalfCodec {
  using Lanes = Float32Lanes<L>;
  using Scalar = float;
  static constexpr std::size_t kChunkBytes = L::kVectorBytes;
  static constexpr bool kFloating = true;
};

}  // namespace
}  // namespace ciranda::kernels
