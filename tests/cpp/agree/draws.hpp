// What random tests of agreement draw by.
#pragma once

#include <cstdint>
#include <random>

namespace ciranda::testing {

using Random = std::mt19937_64;

// A number from `low` to `high`, both included.
inline int pick(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<std::uint64_t>(high - low + 1));
}

inline bool chance(Random& random, int percent) { return pick(random, 1, 100) <= percent; }

}  // namespace ciranda::testing
