#include "base/list_ranks.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace ciranda {
namespace {

TEST(ListRanks, NamesOneOrSeveralAndCutsLongLists) {
  EXPECT_EQ(list_ranks(std::vector<int>{4}), "rank 4");
  EXPECT_EQ(list_ranks(std::vector<std::uint32_t>{2, 3}), "ranks 2, 3");
  std::vector<int> many(40);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_TRUE(list_ranks(many).ends_with("14, 15 and 24 more")) << list_ranks(many);
}

}  // namespace
}  // namespace ciranda
