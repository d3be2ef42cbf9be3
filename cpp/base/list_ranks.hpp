// list_ranks: formats a list of ranks for messages.
// Called by Members, NameState, Standstill, Consistency, StoreExchanges, used_gpus.hpp and world_text.hpp; pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace ciranda {

// "rank 2", "ranks 2, 3", "ranks 2, 3, 4 and 17 more".
template <typename Rank>
std::string list_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMostNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMostNamed) text += " and " + std::to_string(ranks.size() - kMostNamed) + " more";
  return text;
}

}  // namespace ciranda
