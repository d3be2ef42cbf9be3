// The trees of broadcasts, of all layouts of a few ranks: each gets it once, and few things travel over links.
#include "collective/broadcast_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ciranda {
namespace {

struct Tree {
  std::vector<TreePosition> positions;
  std::vector<int> host_of;
  int root;

  const TreePosition& at(int rank) const { return positions[static_cast<std::size_t>(rank)]; }
  int host(int rank) const { return host_of[static_cast<std::size_t>(rank)]; }
  int depth(int rank) const { return rank == root ? 0 : 1 + depth(at(rank).parent); }
};

Tree tree(TreeShape shape, const std::vector<int>& host_of, int root) {
  Tree made{{}, host_of, root};
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    made.positions.push_back(position_in_tree(shape, host_of, root, rank));
  }
  return made;
}

std::size_t ceil_log2(std::size_t n) {
  std::size_t levels = 0;
  while ((std::size_t{1} << levels) < n) ++levels;
  return levels;
}

void expect_tree(const Tree& tree, std::size_t most_children, std::size_t most_depth) {
  const auto n = static_cast<int>(tree.positions.size());
  for (int rank = 0; rank < n; ++rank) {
    const TreePosition& position = tree.at(rank);
    EXPECT_EQ(position.parent < 0, rank == tree.root);
    EXPECT_LE(position.children.size(), most_children);
    for (const int child : position.children) EXPECT_EQ(tree.at(child).parent, rank);
    if (rank == tree.root) continue;
    const auto& siblings = tree.at(position.parent).children;
    EXPECT_EQ(std::count(siblings.begin(), siblings.end(), rank), 1);
    ASSERT_LE(static_cast<std::size_t>(tree.depth(rank)), most_depth);
  }
  // Each host is entered once.
  std::vector<int> entered(tree.positions.size(), 0);
  for (int rank = 0; rank < n; ++rank) {
    const int parent = tree.at(rank).parent;
    if (parent >= 0 && tree.host(parent) != tree.host(rank)) ++entered[static_cast<std::size_t>(tree.host(rank))];
  }
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_EQ(entered[static_cast<std::size_t>(tree.host(rank))], tree.host(rank) == tree.host(tree.root) ? 0 : 1);
  }
}

TEST(BroadcastTree, OfOneRankAHost) {
  for (int n = 1; n <= 33; ++n) {
    std::vector<int> host_of;
    for (int rank = 0; rank < n; ++rank) host_of.push_back(rank);
    const auto levels = ceil_log2(static_cast<std::size_t>(n));
    for (int root = 0; root < n; ++root) {
      expect_tree(tree(TreeShape::kBinomial, host_of, root), levels, levels);
      expect_tree(tree(TreeShape::kChain, host_of, root), 1, static_cast<std::size_t>(n) - 1);
    }
  }
}

TEST(BroadcastTree, OfHostsOfAnyRanks) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::size_t n = 1 + random() % 40;
    std::vector<int> host_of;
    for (std::size_t rank = 0; rank < n; ++rank) host_of.push_back(static_cast<int>(random() % (1 + random() % n)));
    const int root = static_cast<int>(random() % n);
    expect_tree(tree(TreeShape::kBinomial, host_of, root), 2 * ceil_log2(n), 2 * ceil_log2(n));
    expect_tree(tree(TreeShape::kChain, host_of, root), 2, n);
  }
}

// In the order of sending: what is sent first has furthest to go.
TEST(BroadcastTree, WhoPassesOnMostComesFirst) {
  const Tree eight = tree(TreeShape::kBinomial, {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  EXPECT_EQ(eight.at(0).children, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(eight.at(1).children, (std::vector<int>{3, 5}));
  EXPECT_EQ(eight.at(3).children, (std::vector<int>{7}));
  EXPECT_EQ(tree(TreeShape::kBinomial, {0, 0, 0, 1, 1, 1}, 4).at(4).children, (std::vector<int>{0, 5, 3}));
}

}  // namespace
}  // namespace ciranda
