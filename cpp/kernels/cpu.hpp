// The kernels' queries of the processor. CMake selects cpu_x86.cc, cpu_arm.cc or cpu_generic.cc.
// Called by kernels.hpp, kernels/adasum.hpp and bfloat16_wire.hpp; defined in cpu_*.cc; any thread.
#pragma once

#include <cstdint>

#include "kernels/level.hpp"
#include "kernels/simd_level.hpp"

namespace ciranda::kernels {

// The highest level that was built, that this CPU supports, and whose registers the operating system saves.
SimdLevel detect_simd_level();

// REQUIRES: level <= detect_simd_level().
VectorKernel vector_kernel(SimdLevel level);

// While an object lives, this thread rounds to nearest and keeps subnormals. Frameworks offer a flush-to-zero mode:
// without this class, results would depend on the thread that computes them. Nearly free if the mode is the default.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  std::uint64_t saved_ = 0;  // the mode to restore, in a format of the implementation
  bool changed_ = false;
};

}  // namespace ciranda::kernels
