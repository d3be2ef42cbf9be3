// SimdLevel: the instruction sets that the reduction kernels are compiled for, weakest first.
// Used by cpu.hpp and kernels.hpp; a plain value.
#pragma once

#include <cstdint>

namespace ciranda::kernels {

enum class SimdLevel : std::uint8_t { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

}  // namespace ciranda::kernels
