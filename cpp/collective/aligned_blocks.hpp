// AlignedBlocks: the subtrees of the tree in which inputs are combined (kernels.hpp). At level k ranks are in blocks of
// 2^k, which begin at multiples of 2^k; the last block may be smaller. Two neighbouring blocks form one of the next
// level; a block without a neighbour on its right moves up unchanged. Called by direct_allreduce_doubling.cc and
// algorithms.cc; pure.
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
  // The block of `rank` at a level, and the block with which it forms one of the next level; empty if there is none.
  Block block(int level, int rank) const {
    const int begin = rank >> level << level;
    return {begin, std::min(begin + (1 << level), n_ranks)};
  }
  Block sibling(int level, int rank) const {
    const int begin = (rank >> level ^ 1) << level;
    return {std::min(begin, n_ranks), std::min(begin + (1 << level), n_ranks)};
  }
  static constexpr bool is_left(int level, int rank) { return (rank >> level & 1) == 0; }

  // The rank of the sibling that sends the sibling's result to `rank`. In a smaller sibling, each rank serves several.
  // REQUIRES, also for targets(): the sibling is not empty.
  int source(int level, int rank) const {
    const Block from = sibling(level, rank);
    return from.begin + (rank - block(level, rank).begin) % from.size();
  }
  // The ranks to which `rank` sends its block's result.
  std::vector<int> targets(int level, int rank) const {
    const Block own = block(level, rank);
    const Block to = sibling(level, rank);
    std::vector<int> all;
    for (int target = to.begin + (rank - own.begin); target < to.end; target += own.size()) all.push_back(target);
    return all;
  }
  // The largest number of targets of any rank. REQUIRES: level < n_levels().
  int most_targets(int level) const {
    const int width = 1 << level;
    const Block last = block(level, n_ranks - 1);
    return is_left(level, last.begin) ? 1 : (width + last.size() - 1) / last.size();
  }
};

}  // namespace ciranda
