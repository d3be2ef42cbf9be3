// repetitions(n): how often a test draws at random. Under a sanitizer, which takes ten times as long, a tenth:
// whatever touches memory that is not its own does so in nearly every draw, and the rest is for the optimized build to
// find.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ciranda {

constexpr std::uint64_t repetitions(std::uint64_t n) {
#ifdef CIRANDA_SANITIZED
  return std::max<std::uint64_t>(n / 10, 1);
#else
  return n;
#endif
}

}  // namespace ciranda
