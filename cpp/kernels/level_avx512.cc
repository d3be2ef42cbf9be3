// The kernels for AVX-512 (F, BW, VL, DQ). Compiled with those flags; runs only if detect_simd_level() allows it.
#include <immintrin.h>

#include "kernels/level_reduce.hpp"

namespace ciranda::kernels {
namespace {

struct Avx512 {
  static constexpr std::size_t kVectorBytes = 64;

  struct HalfCodec {
    // The unmasked intrinsics cause a false warning of gcc 12 (an uninitialised variable); a full mask costs nothing.
    static constexpr __mmask16 kAll = 0xFFFF;
    static constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

    [[gnu::always_inline]] static inline Pair<Float32Lanes<Avx512>> load(const std::byte* from) {
      const auto* halves = reinterpret_cast<const __m256i*>(from);
      return {_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(halves)),
              _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(halves + 1))};
    }
    [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Float32Lanes<Avx512>>& pair) {
      auto* halves = reinterpret_cast<__m256i*>(to);
      _mm256_storeu_si256(halves, _mm512_maskz_cvtps_ph(kAll, pair.a, kRounding));
      _mm256_storeu_si256(halves + 1, _mm512_maskz_cvtps_ph(kAll, pair.b, kRounding));
    }
  };
};

}  // namespace

void reduce_avx512(const VectorJob& job) { reduce_level<Avx512>(job); }

}  // namespace ciranda::kernels
