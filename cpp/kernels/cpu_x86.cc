#include <cpuid.h>
#include <xmmintrin.h>

#include "kernels/cpu.hpp"

namespace ciranda::kernels {
namespace {

constexpr unsigned kStatusFlags = 0x003F;
constexpr unsigned kDefaultControl = 0x1F80;  // exceptions masked, to nearest, no flush to zero

bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

SimdLevel detect_simd_level() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512) return SimdLevel::kAvx512;
  return avx2 ? SimdLevel::kAvx2 : SimdLevel::kBaseline;
}

VectorKernel vector_kernel(SimdLevel level) {
  switch (level) {
    case SimdLevel::kAvx512: return reduce_avx512;
    case SimdLevel::kAvx2: return reduce_avx2;
    case SimdLevel::kBaseline: break;
  }
  return reduce_baseline;
}

ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
  changed_ = (saved_ & ~std::uint64_t{kStatusFlags}) != kDefaultControl;
  if (changed_) _mm_setcsr(kDefaultControl);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() {
  if (changed_) _mm_setcsr(static_cast<unsigned>(saved_));
}

}  // namespace ciranda::kernels
