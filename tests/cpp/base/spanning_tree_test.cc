#include "base/spanning_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace ciranda {
namespace {

std::vector<std::string> hosts_of(int n_hosts, int n_on_each) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < n_hosts * n_on_each; ++rank) hosts.push_back("host" + std::to_string(rank / n_on_each));
  return hosts;
}

int n_linked(const SpanningTree& tree, int rank, int n_ranks) {
  int n = 0;
  for (int other = 0; other < n_ranks; ++other) n += tree.are_linked(rank, other) ? 1 : 0;
  return n;
}

TEST(SpanningTree, LinksFewOfMany) {
  const SpanningTree tree(hosts_of(64, 8), true);
  for (int rank = 0; rank < 512; ++rank) EXPECT_LE(n_linked(tree, rank, 512), 16) << rank;
  EXPECT_EQ(n_linked(tree, 1, 512), 1);
}

TEST(SpanningTree, IsAStarWithoutRelaysAndLinksAllOfFew) {
  EXPECT_EQ(n_linked(SpanningTree(hosts_of(33, 1), true), 0, 33), 32);
  EXPECT_EQ(n_linked(SpanningTree(hosts_of(33, 1), true), 32, 33), 1);
  EXPECT_EQ(n_linked(SpanningTree(hosts_of(10, 4), false), 0, 40), 39);
  EXPECT_EQ(n_linked(SpanningTree(hosts_of(8, 1), true), 5, 8), 7);
}

TEST(SpanningTree, ReplacesOneThatHasLeftByOneOfItsHostThenOfThoseAbove) {
  SpanningTree tree({"a", "b", "a", "b", "b"}, true);
  EXPECT_EQ(tree.parent(4), 1);
  tree.note_left(1);
  EXPECT_EQ(tree.parent(4), 3);
  EXPECT_EQ(tree.parent(3), 0);
  tree.note_left(0);
  EXPECT_EQ(tree.parent(3), 2);
  EXPECT_EQ(tree.parent(2), -1);
  tree.note_left(2);
  EXPECT_EQ(tree.parent(3), -1);
}

// What the order of goodbyes relies on, for hosts in any order.
TEST(SpanningTree, ConnectsAllWhoStayAndChangesOnlyWithWhomeverLeaves) {
  std::mt19937 random(7);
  for (const int n_ranks : {9, 40, 100}) {
    std::vector<std::string> hosts = hosts_of(n_ranks / 3 + 1, 3);
    hosts.resize(static_cast<std::size_t>(n_ranks));
    std::shuffle(hosts.begin(), hosts.end(), random);
    SpanningTree tree(hosts, true);
    std::vector<int> order;
    for (int rank = 0; rank < n_ranks; ++rank) order.push_back(rank);
    std::shuffle(order.begin(), order.end(), random);
    for (const int leaver : order) {
      std::vector<int> before;
      for (int rank = 0; rank < n_ranks; ++rank) before.push_back(tree.parent(rank));
      tree.note_left(leaver);
      int n_roots = 0;
      for (int rank = 0; rank < n_ranks; ++rank) {
        const int above = tree.parent(rank);
        ASSERT_LT(above, rank);
        ASSERT_TRUE(above < 0 || !tree.has_left(above));
        if (before[static_cast<std::size_t>(rank)] != leaver) {
          ASSERT_EQ(above, before[static_cast<std::size_t>(rank)]);
        }
        n_roots += above < 0 && !tree.has_left(rank) ? 1 : 0;
      }
      ASSERT_LE(n_roots, 1);
    }
  }
}

}  // namespace
}  // namespace ciranda
