// The members that a plan names, where none named means all.
#pragma once

#include <numeric>
#include <vector>

namespace ciranda {

inline std::vector<int> members_of(const std::vector<int>& named, int n_members) {
  if (!named.empty()) return named;
  std::vector<int> all(static_cast<std::size_t>(n_members));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace ciranda
