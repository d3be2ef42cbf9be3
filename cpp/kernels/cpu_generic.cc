#include <cfenv>

#include "kernels/cpu.hpp"

namespace ciranda::kernels {

SimdLevel detect_simd_level() { return SimdLevel::kBaseline; }

VectorKernel vector_kernel(SimdLevel /*level*/) { return reduce_baseline; }

// <cfenv> can only read and set the rounding mode; whether subnormals are flushed stays as the thread has it.
ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(static_cast<std::uint64_t>(std::fegetround())) {
  changed_ = std::fegetround() != FE_TONEAREST;
  if (changed_) std::fesetround(FE_TONEAREST);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() {
  if (changed_) std::fesetround(static_cast<int>(saved_));
}

}  // namespace ciranda::kernels
