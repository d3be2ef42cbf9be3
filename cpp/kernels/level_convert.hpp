// float32 to bfloat16 and back (bfloat16_wire.hpp), for one level.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold.
//
// Called by level_reduce.hpp; pure.
#pragma once

#include "kernels/level.hpp"
#include "kernels/level_codecs.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

template <class L>
class Converter {
 public:
  static void run(const VectorJob& job) {
    switch (job.conversion) {
      case Conversion::kNone: return;
      case Conversion::kRound: return each<Words, Words>(job, [](Words words) { return rounded(words); });
      case Conversion::kPack:
        return each<Words, Halves>(job,
                                   [](Words words) { return __builtin_convertvector(rounded(words) >> 16, Halves); });
      case Conversion::kUnpack:
        return each<Halves, Words>(job, [](Halves halves) { return __builtin_convertvector(halves, Words) << 16; });
    }
  }

 private:
  using Words = typename VectorOf<L::kVectorBytes, std::uint32_t>::Type;
  using Ints = typename VectorOf<L::kVectorBytes, std::int32_t>::Type;
  using Halves = typename VectorOf<L::kVectorBytes / 2, std::uint16_t>::Type;
  static constexpr std::size_t kLanes = L::kVectorBytes / sizeof(float);

  [[gnu::always_inline]] static inline Words rounded(Words words) {
    const Words nearest = (words + ((words >> 16) & 1U) + 0x7FFFU) & 0xFFFF0000U;
    const Ints is_nan = reinterpret_cast<Ints>(words & 0x7FFFFFFFU) > 0x7F800000;
    return is_nan ? Words{} + 0x7FC00000U : nearest;
  }

  // The incomplete last vector is padded, and converted by the same instructions.
  template <class From, class To, class Function>
  [[gnu::always_inline]] static inline void each(const VectorJob& job, Function function) {
    const std::byte* from = job.inputs[0];
    std::byte* to = job.out;
    const std::size_t count = job.n_bytes / sizeof(float);
    From in;
    for (std::size_t i = 0; i < count / kLanes; ++i, from += sizeof(From), to += sizeof(To)) {
      load_vector(from, in);
      store_vector(to, function(in));
    }
    const std::size_t n_left = count % kLanes;
    if (n_left == 0) return;
    in = From{};
    __builtin_memcpy(&in, from, n_left * (sizeof(From) / kLanes));
    const To out = function(in);
    __builtin_memcpy(to, &out, n_left * (sizeof(To) / kLanes));
  }
};

}  // namespace
}  // namespace ciranda::kernels
