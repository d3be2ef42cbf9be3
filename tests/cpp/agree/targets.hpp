// Whom a failure is for, rank by rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "agree/messages.hpp"

namespace ciranda::testing {

// Ascending; a rank stands there as often as its reports have failed.
inline std::vector<std::int32_t> targets_of(const FailEntry& failure) {
  std::vector<std::int32_t> targets;
  for (const RankRange& range : failure.targets) {
    for (std::int32_t rank = range.first; rank <= range.last; ++rank) targets.push_back(rank);
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

}  // namespace ciranda::testing
