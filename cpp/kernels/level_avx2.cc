// The kernels for AVX2 and F16C. Compiled with -mavx2 -mf16c; runs only if detect_simd_level() allows it.
#include <immintrin.h>

#include "kernels/level_reduce.hpp"

namespace ciranda::kernels {
namespace {

struct Avx2 {
  static constexpr std::size_t kVectorBytes = 32;

  struct HalfCodec {
    [[gnu::always_inline]] static inline Pair<Float32Lanes<Avx2>> load(const std::byte* from) {
      const auto* halves = reinterpret_cast<const __m128i*>(from);
      return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
    }
    [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Float32Lanes<Avx2>>& pair) {
      auto* halves = reinterpret_cast<__m128i*>(to);
      _mm_storeu_si128(halves, _mm256_cvtps_ph(pair.a, _MM_FROUND_TO_NEAREST_INT));
      _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(pair.b, _MM_FROUND_TO_NEAREST_INT));
    }
  };
};

}  // namespace

void reduce_avx2(const VectorJob& job) { reduce_level<Avx2>(job); }

}  // namespace ciranda::kernels
