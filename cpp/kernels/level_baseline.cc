// The kernels for the compiler's default instruction set: 16-byte vectors, fp16 by the instructions that every 64-bit
// ARM processor has, elsewhere by integer arithmetic.
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/level_reduce.hpp"

namespace ciranda::kernels {
namespace {

struct Baseline {
  static constexpr std::size_t kVectorBytes = 16;

#if defined(__aarch64__)
  struct HalfCodec {
    [[gnu::always_inline]] static inline Pair<Float32Lanes<Baseline>> load(const std::byte* from) {
      float16x4x2_t halves;
      load_vector(from, halves);
      return {vcvt_f32_f16(halves.val[0]), vcvt_f32_f16(halves.val[1])};
    }
    [[gnu::always_inline]] static inline void store(std::byte* to, const Pair<Float32Lanes<Baseline>>& pair) {
      store_vector(to, float16x4x2_t{{vcvt_f16_f32(pair.a), vcvt_f16_f32(pair.b)}});
    }
  };
#else
  using HalfCodec = HalfByBits<Baseline>;
#endif
};

}  // namespace

void reduce_baseline(const VectorJob& job) { reduce_level<Baseline>(job); }

}  // namespace ciranda::kernels
