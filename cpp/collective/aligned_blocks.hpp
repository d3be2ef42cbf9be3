// AlignedBlocks: the subtrees of the tree in which inputs are combined (kernels.hpp). At level k ranks are in blocks of
// 2^k that begin at multiples of that; the last may have fewer. At each level two neighbouring blocks make one of the
// next, and one that has no neighbour on its right is passed up as it is. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

namespace ciranda {

struct AlignedBlocks {
  int n_ranks;

  int n_levels() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(n_ranks - 1))); }

  struct Block {
    int begin;
    int end;
    int size() const { return end - begin; }
  };
  // Of `rank`, at a level; and the one with which it makes one of the next, empty where there is none.
  Block block(int level, int rank) const {
    const int begin = rank >> level << level;
    return {begin, std::min(begin + (1 << level), n_ranks)};
  }
  Block sibling(int level, int rank) const {
    const int begin = (rank >> level ^ 1) << level;
    return {std::min(begin, n_ranks), std::min(begin + (1 << level), n_ranks)};
  }
  static constexpr bool is_left(int level, int rank) { return (rank >> level & 1) == 0; }

  // Who has what the sibling's ranks have in common and gives it to `rank`: of a block of fewer, each gives it to
  // several. REQUIRES, here and below: the sibling is not empty.
  int source(int level, int rank) const {
    const Block from = sibling(level, rank);
    return from.begin + (rank - block(level, rank).begin) % from.size();
  }
  // Those to whom `rank` gives what its block has.
  std::vector<int> targets(int level, int rank) const {
    const Block own = block(level, rank);
    const Block to = sibling(level, rank);
    std::vector<int> all;
    for (int target = to.begin + (rank - own.begin); target < to.end; target += own.size()) all.push_back(target);
    return all;
  }
  // To how many a rank gives it, of those that give it to most. REQUIRES: level < n_levels().
  int most_targets(int level) const {
    const int width = 1 << level;
    const Block last = block(level, n_ranks - 1);
    return is_left(level, last.begin) ? 1 : (width + last.size() - 1) / last.size();
  }
};

}  // namespace ciranda
