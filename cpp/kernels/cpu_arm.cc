#include "kernels/cpu.hpp"

namespace ciranda::kernels {
namespace {

// The register that controls rounding, flushing of subnormals, the form of NaNs and of fp16, and traps. All bits are 0
// by default: to nearest, nothing flushed, payloads kept, fp16 as IEEE has it, no traps.
std::uint64_t control() {
  std::uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));  // NOLINT(hicpp-no-assembler): gcc and clang name no function alike
  return bits;
}

void set_control(std::uint64_t bits) {
  asm volatile("msr fpcr, %0" : : "r"(bits) : "memory");  // NOLINT(hicpp-no-assembler)
}

}  // namespace

// Every processor of this kind has the vectors and the conversions that the baseline uses.
SimdLevel detect_simd_level() { return SimdLevel::kBaseline; }

VectorKernel vector_kernel(SimdLevel /*level*/) { return reduce_baseline; }

ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(control()), changed_(saved_ != 0) {
  if (changed_) set_control(0);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() {
  if (changed_) set_control(saved_);
}

}  // namespace ciranda::kernels
