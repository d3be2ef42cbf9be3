#include "collective/aligned_blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ciranda {
namespace {

// The tree that kernels.hpp specifies: the left part of every range is the largest power of two that leaves something.
std::string specified(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  int left = 1;
  while (2 * left < end - begin) left *= 2;
  return "(" + specified(begin, begin + left) + " " + specified(begin + left, end) + ")";
}

// Going up level by level, each rank with what it is given, all come to that tree.
TEST(AlignedBlocks, AreItsSubtrees) {
  for (int n = 1; n <= 70; ++n) {
    const AlignedBlocks blocks{n};
    std::vector<std::string> has;
    for (int rank = 0; rank < n; ++rank) has.push_back(std::to_string(rank));
    for (int level = 0; level < blocks.n_levels(); ++level) {
      const std::vector<std::string> had = has;
      std::size_t most = 0;
      for (int rank = 0; rank < n; ++rank) {
        if (blocks.sibling(level, rank).size() == 0) continue;
        const int source = blocks.source(level, rank);
        const std::vector<int> back = blocks.targets(level, source);
        EXPECT_EQ(std::count(back.begin(), back.end(), rank), 1);
        most = std::max(most, blocks.targets(level, rank).size());
        const std::string& mine = had[static_cast<std::size_t>(rank)];
        const std::string& theirs = had[static_cast<std::size_t>(source)];
        has[static_cast<std::size_t>(rank)] =
            AlignedBlocks::is_left(level, rank) ? "(" + mine + " " + theirs + ")" : "(" + theirs + " " + mine + ")";
      }
      EXPECT_EQ(blocks.most_targets(level), static_cast<int>(most)) << n << " " << level;
    }
    for (const std::string& each : has) EXPECT_EQ(each, specified(0, n));
  }
}

}  // namespace
}  // namespace ciranda
