// What the kernels need to know of the processor. CMake picks cpu_x86.cc or cpu_generic.cc.
#pragma once

#include <cstdint>

#include "kernels/level.hpp"
#include "kernels/simd_level.hpp"

namespace ciranda::kernels {

// The strongest level that was built, that this CPU has and that the operating system saves the registers of.
SimdLevel detect_simd_level();

// REQUIRES: level <= detect_simd_level().
VectorKernel vector_kernel(SimdLevel level);

// While it lives, this thread rounds to nearest and keeps subnormals, whatever its owner had set (frameworks offer a
// flush-to-zero mode): else results would depend on which thread computed them. Nearly free where nothing was set.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  std::uint64_t saved_ = 0;  // what to restore; its meaning is the implementation's
  bool changed_ = false;
};

}  // namespace ciranda::kernels
