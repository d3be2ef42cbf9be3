// LearnedOrder: a plan stands after two equal steps, follows their order and bytes, and falls with a step that differs.
#include "agree/learned_order.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ciranda {
namespace {

struct Item {
  std::uint32_t cache_id;
  std::size_t n_bytes;
};

void observe(LearnedOrder& order, const std::vector<Item>& step) {
  for (const Item& item : step) order.observe(item.cache_id, item.n_bytes);
}

const std::vector<Item> kStep{{7, 60}, {3, 60}, {5, 60}, {1, 10}};

TEST(LearnedOrder, PlansAfterTwoEqualSteps) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  EXPECT_FALSE(order.group_of(7));
  order.observe(7, 60);  // the third step begins: two are complete
  ASSERT_TRUE(order.group_of(7));
  EXPECT_EQ(order.n_groups(), 2U);
  EXPECT_EQ(order.group_of(7), order.group_of(3));
  EXPECT_EQ(order.group_of(5), order.group_of(1));
  EXPECT_NE(order.group_of(7), order.group_of(5));
  EXPECT_EQ(order.group_size(*order.group_of(7)), 2U);
  EXPECT_EQ(order.group_size(*order.group_of(5)), 2U);
}

TEST(LearnedOrder, FollowsTheOrderOfTheLastStep) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, {{1, 10}, {5, 60}, {3, 60}, {7, 60}});
  order.observe(3, 60);
  EXPECT_EQ(order.group_of(1), order.group_of(5));
  EXPECT_EQ(order.group_of(1), order.group_of(3));  // 70 bytes are not yet 100
  EXPECT_NE(order.group_of(3), order.group_of(7));
}

TEST(LearnedOrder, GivesALargeOneItsOwnGroup) {
  LearnedOrder order({.group_bytes = 100});
  const std::vector<Item> step{{0, 500}, {1, 500}, {2, 1}, {3, 0}};
  observe(order, step);
  observe(order, step);
  order.observe(0, 500);
  EXPECT_EQ(order.n_groups(), 3U);
  EXPECT_EQ(order.group_size(*order.group_of(0)), 1U);
  EXPECT_EQ(order.group_size(*order.group_of(1)), 1U);
  EXPECT_EQ(order.group_size(*order.group_of(2)), 2U);
}

TEST(LearnedOrder, KeepsThePlanWhileTheSetStays) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  order.observe(7, 60);
  const auto plan = order.plan();
  observe(order, {{1, 10}, {5, 60}, {3, 60}});
  for (int i = 0; i < 5; ++i) observe(order, kStep);
  EXPECT_EQ(order.plan(), plan);
  EXPECT_TRUE(order.group_of(7));
}

TEST(LearnedOrder, DropsThePlanAtOnceWhenAStrangerComes) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  order.observe(7, 60);
  const auto plan = order.plan();
  order.observe(99, 4);
  EXPECT_FALSE(order.group_of(7));
  EXPECT_FALSE(order.group_of(99));
  EXPECT_EQ(order.n_groups(), 0U);
  EXPECT_NE(order.plan(), plan);
}

TEST(LearnedOrder, DropsThePlanAfterAStepThatLacksOne) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  observe(order, {{7, 60}, {3, 60}, {5, 60}});
  EXPECT_TRUE(order.group_of(7));  // that 1 will not come is not known yet
  order.observe(7, 60);
  EXPECT_FALSE(order.group_of(7));
}

TEST(LearnedOrder, PlansAgainAfterAChange) {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  const std::vector<Item> other{{7, 60}, {8, 60}};
  observe(order, other);
  observe(order, other);
  order.observe(7, 60);
  ASSERT_TRUE(order.group_of(8));
  EXPECT_EQ(order.group_of(7), order.group_of(8));
  EXPECT_FALSE(order.group_of(3));
}

TEST(LearnedOrder, MakesNoPlanOfStepsThatAlternate) {
  LearnedOrder order({.group_bytes = 100});
  for (int i = 0; i < 10; ++i) {
    observe(order, {{0, 10}, {1, 10}});
    observe(order, {{0, 10}, {2, 10}});
    EXPECT_FALSE(order.group_of(0));
  }
}

// --- kinds, limits and whole groups

void observe_kinds(LearnedOrder& order, const std::vector<std::pair<Item, std::uint32_t>>& step) {
  for (const auto& [item, kind] : step) order.observe(item.cache_id, item.n_bytes, kind);
}

TEST(LearnedOrder, GroupsByKindAcrossOthers) {
  LearnedOrder order({.group_bytes = 100});
  const std::vector<std::pair<Item, std::uint32_t>> step{{{0, 40}, 0}, {{1, 40}, 1}, {{2, 40}, 0}, {{3, 40}, kNoKind},
                                                         {{4, 40}, 1}, {{5, 40}, 0}, {{6, 40}, 0}};
  observe_kinds(order, step);
  observe_kinds(order, step);
  order.observe(0, 40, 0);
  ASSERT_EQ(order.n_groups(), 3U);
  EXPECT_EQ(order.cache_ids_of(0), (std::vector<std::uint32_t>{0, 2, 5}));
  EXPECT_EQ(order.cache_ids_of(1), (std::vector<std::uint32_t>{1, 4}));
  EXPECT_EQ(order.cache_ids_of(2), (std::vector<std::uint32_t>{6}));
  EXPECT_FALSE(order.group_of(3));
}

TEST(LearnedOrder, MakesGroupsLargerRatherThanMany) {
  LearnedOrder order({.group_bytes = 10, .most_groups = 4});
  for (int step = 0; step < 3; ++step) {
    for (std::uint32_t cache_id = 0; cache_id < 100; ++cache_id) order.observe(cache_id, 10);
  }
  EXPECT_EQ(order.n_groups(), 4U);
}

TEST(LearnedOrder, KeepsGroupsBelowTheMost) {
  LearnedOrder order({.group_bytes = 100, .most_bytes = 90});
  for (int step = 0; step < 3; ++step) {
    for (std::uint32_t cache_id = 0; cache_id < 9; ++cache_id) order.observe(cache_id, cache_id == 4 ? 200 : 30);
  }
  ASSERT_TRUE(order.has_plan());
  EXPECT_EQ(order.cache_ids_of(0), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(order.cache_ids_of(1), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(order.cache_ids_of(2), (std::vector<std::uint32_t>{4}));
}

LearnedOrder planned() {
  LearnedOrder order({.group_bytes = 100});
  observe(order, kStep);
  observe(order, kStep);
  order.observe(7, 60);  // groups: 7 and 3; 5 and 1
  order.observe(3, 60);
  order.observe_group(1);
  return order;
}

TEST(LearnedOrder, CountsWholeGroups) {
  LearnedOrder order = planned();
  const auto plan = order.plan();
  for (int step = 0; step < 3; ++step) {
    order.observe_group(1);
    order.observe_group(0);
  }
  observe(order, {{1, 10}, {7, 60}, {3, 60}, {5, 60}});
  order.observe_group(0);
  order.observe_group(1);
  observe(order, kStep);
  EXPECT_EQ(order.plan(), plan);
  EXPECT_TRUE(order.group_of(7));
}

TEST(LearnedOrder, DropsThePlanWhenAGroupIsMissing) {
  LearnedOrder order = planned();
  order.observe_group(0);
  EXPECT_TRUE(order.has_plan());
  order.observe_group(0);  // that 1 did not come is known now
  EXPECT_FALSE(order.has_plan());
  observe(order, {{7, 60}, {3, 60}});
  observe(order, {{7, 60}, {3, 60}});
  EXPECT_TRUE(order.has_plan());  // of what came since
}

TEST(LearnedOrder, LearnsFromTheGroupsOfAStepThatBringsMore) {
  LearnedOrder order = planned();
  order.observe_group(0);
  order.observe_group(1);
  order.observe(99, 10);  // a stranger
  EXPECT_FALSE(order.has_plan());
  observe(order, {{7, 60}, {3, 60}, {5, 60}, {1, 10}, {99, 10}});
  order.observe(7, 60);
  EXPECT_TRUE(order.has_plan());
  EXPECT_TRUE(order.group_of(99));
}

}  // namespace
}  // namespace ciranda
