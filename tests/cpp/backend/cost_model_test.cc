#include "backend/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "backend/chosen.hpp"
#include "backend/native.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

Pick pick(std::string_view name, std::size_t segment_bytes = 0) {
  const auto found = std::ranges::find(algorithms(), name, &AlgorithmRow::name);
  EXPECT_NE(found, algorithms().end()) << name;
  return {&*found, segment_bytes};
}

std::vector<Pick> all_with_costs() {
  std::vector<Pick> found;
  for (const AlgorithmRow& row : algorithms()) {
    if (row.cost != nullptr) found.push_back({&row});
  }
  return found;
}

Placement hosts_of(std::uint64_t n_hosts, std::uint64_t ranks_each) {
  return {n_hosts * ranks_each, n_hosts, ranks_each, 1};
}

HostCosts random_costs(std::mt19937_64& random) {
  HostCosts costs;
  for (const HostCost& each : kHostCosts) {
    std::uint64_t value = each.lowest;
    while (value < each.highest && random() % 8 != 0) value *= 1 + random() % 5;
    costs.*each.value = std::min(value, each.highest);
  }
  return costs;
}

// Exact where the numbers are small enough for doubles; and never contradicting them by more than their rounding.
TEST(CostModelTest, TheComparisonIsThatOfTheCosts) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const CostModel model(random_costs(random), hosts_of(1 + random() % 64, 1 + random() % 16));
    const std::size_t n_bytes = random() % (std::size_t{1} << (1 + random() % 36));
    for (const Pick& one : all_with_costs()) {
      for (const Pick& other : all_with_costs()) {
        const double a = model.microseconds(one, n_bytes);
        const double b = model.microseconds(other, n_bytes);
        if (a < b * (1 - 1e-9) - 1e-3) {
          EXPECT_TRUE(model.is_no_slower(one, other, n_bytes)) << n_bytes;
        }
        EXPECT_TRUE(model.is_no_slower(one, other, n_bytes) || model.is_no_slower(other, one, n_bytes));
      }
    }
  }
}

// The largest numbers that the bounds allow, of many ranks: nothing wraps around.
TEST(CostModelTest, TheMostThatBoundsAllowIsNotTooMuch) {
  HostCosts costs;
  for (const HostCost& each : kHostCosts) costs.*each.value = each.highest;
  const CostModel model(costs, hosts_of(4096, 64));
  const double one = model.microseconds(pick("direct one-shot"), 1);
  const double two = model.microseconds(pick("direct two-shot"), 1);
  EXPECT_GT(one, 1e6);
  EXPECT_GT(two, one);
  EXPECT_GT(model.microseconds(pick("direct one-shot"), 1 << 20), model.microseconds(pick("direct two-shot"), 1 << 20));
  EXPECT_TRUE(model.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), 0));
  EXPECT_FALSE(
      model.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), std::numeric_limits<std::size_t>::max()));
}

// Nothing measured, two ranks: what was found good by hand.
TEST(CostModelTest, DefaultsAreThoseFoundGood) {
  const CostModel together({}, hosts_of(1, 2));
  EXPECT_TRUE(together.is_no_slower(pick("shm one-shot"), pick("shm two-shot"), 16 << 10));
  EXPECT_FALSE(together.is_no_slower(pick("shm one-shot"), pick("shm two-shot"), 18 << 10));
  const CostModel apart({}, hosts_of(2, 2));
  EXPECT_TRUE(apart.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), 8 << 10));
  EXPECT_FALSE(apart.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), 32 << 10));
  EXPECT_TRUE(apart.is_no_slower(pick("direct two-shot"), pick("direct by-hosts"), 32 << 10));
  EXPECT_FALSE(apart.is_no_slower(pick("direct two-shot"), pick("direct by-hosts"), 128 << 10));
}

TEST(CostModelTest, WaitingLongerFavoursFewerRounds) {
  HostCosts patient;
  patient.shared_round_ns *= 10;
  const CostModel model(patient, hosts_of(1, 2));
  EXPECT_TRUE(model.is_no_slower(pick("shm one-shot"), pick("shm two-shot"), 100 << 10));
  const CostModel crowded({}, {2, 1, 2, 2});
  EXPECT_TRUE(crowded.is_no_slower(pick("shm one-shot"), pick("shm two-shot"), 100 << 10));
}

// The root's link is the limit: a chain loads it once.
TEST(CostModelTest, WhatIsLargeIsPassedOn) {
  const CostModel apart({}, hosts_of(8, 1));
  const auto us = [&](std::string_view name, std::size_t n_bytes) {
    return apart.microseconds(pick(name, name == "direct star" ? 0 : std::size_t{64} << 10), n_bytes);
  };
  EXPECT_LT(us("direct star", 4), us("direct tree", 4));
  EXPECT_LT(us("direct tree", 4), us("direct chain", 4));
  EXPECT_LT(us("direct tree", 64 << 10), us("direct star", 64 << 10));
  EXPECT_LT(us("direct tree", 64 << 10), us("direct chain", 64 << 10));
  EXPECT_LT(5 * us("direct chain", 16 << 20), us("direct star", 16 << 20));
  EXPECT_LT(us("direct chain", 16 << 20), us("direct tree", 16 << 20));
}

// Of two ranks none would pass anything on.
TEST(CostModelTest, TwoRanksBroadcastDirectly) {
  for (const Placement& placement : {hosts_of(2, 1), hosts_of(1, 2)}) {
    const CostModel two({}, placement);
    for (const std::size_t n_bytes : {std::size_t{4}, std::size_t{1} << 26}) {
      for (const std::string_view other : {"direct tree", "direct chain"}) {
        EXPECT_TRUE(two.is_no_slower(pick("direct star"), pick(other, 64 << 10), n_bytes));
      }
    }
  }
}

// Messages to all others cost more than some rounds more, where there are many.
TEST(CostModelTest, ManyRanksDouble) {
  const auto doubles = [](std::uint64_t n_hosts, std::size_t n_bytes) {
    const CostModel model({}, hosts_of(n_hosts, 1));
    return !model.is_no_slower(pick("direct one-shot"), pick("direct doubling"), n_bytes) &&
           !model.is_no_slower(pick("direct two-shot"), pick("direct doubling"), n_bytes);
  };
  EXPECT_FALSE(doubles(8, 4));
  EXPECT_TRUE(doubles(256, 4));
  EXPECT_TRUE(doubles(128, 4 << 10));
  EXPECT_FALSE(doubles(128, 1 << 20));
}

// Of two hosts of six each sends two parts, not one; of six inputs.
TEST(CostModelTest, HostsThatAreNotAPowerOfTwoSendMore) {
  const CostModel six({}, {12, 2, 6, 1, 6, 2});
  const CostModel eight({}, {16, 2, 8, 1, 8, 1});
  EXPECT_GT(six.microseconds(pick("direct by-hosts", 256 << 10), 64 << 20),
            eight.microseconds(pick("direct by-hosts", 256 << 10), 64 << 20));
  EXPECT_LT(2 * six.microseconds(pick("direct by-hosts", 256 << 10), 64 << 20),
            six.microseconds(pick("direct two-shot", 256 << 10), 64 << 20));
}

// 16 KiB by four ranks on two cores, called from Python, were seen to take 31 to 68 us.
TEST(CostModelTest, CoresThatAreSharedAreWaitedFor) {
  const CostModel crowded({}, {4, 1, 4, 2});
  EXPECT_GT(crowded.microseconds(pick("shm one-shot"), 16 << 10), 30);
  EXPECT_LT(crowded.microseconds(pick("shm one-shot"), 16 << 10), 50);
}

// Of two ranks on a host without shared memory, 256 KiB were seen to take as long in one shot as in two.
TEST(CostModelTest, OneShotSavesADelayUntilItsCopiesCostMore) {
  const CostModel apart({}, {2, 1, 2, 1});
  EXPECT_TRUE(apart.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), 192 << 10));
  EXPECT_FALSE(apart.is_no_slower(pick("direct one-shot"), pick("direct two-shot"), 384 << 10));
}

TEST(CostModelTest, EachFurtherSegmentCosts) {
  const CostModel model({}, hosts_of(1, 2));
  const double whole = model.microseconds(pick("shm two-shot"), 1 << 20);
  EXPECT_DOUBLE_EQ(model.microseconds(pick("shm two-shot", 1 << 20), 1 << 20), whole);
  const double round_us = static_cast<double>(HostCosts{}.shared_round_ns) * 1e-3;
  EXPECT_NEAR(model.microseconds(pick("shm two-shot", 256 << 10), 1 << 20), whole + 3 * round_us, 1e-6);
  EXPECT_TRUE(model.is_no_slower(pick("shm two-shot", 512 << 10), pick("shm two-shot", 4096), 1 << 20));
  EXPECT_FALSE(model.is_no_slower(pick("shm two-shot", 4096), pick("shm two-shot"), 1 << 20));
  EXPECT_TRUE(model.is_no_slower(pick("shm two-shot", 4096), pick("shm two-shot"), 1 << 20, 200));
}

std::string_view chosen_by(const std::vector<std::optional<HostCosts>>& costs, int rank, std::size_t n_bytes) {
  LoopbackOptions options;
  options.costs = costs;
  LoopbackFabric fabric(static_cast<int>(costs.size()), options);
  const auto mesh = fabric.take_mesh(rank);
  return testing::chosen(NativeBackend(*mesh, {}), Collective::kAllreduce, n_bytes);
}

// Ranks with other files, or none, come to the same choice: that of the slowest who has measured.
TEST(CostModelTest, RanksThatHaveMeasuredDifferentlyAgree) {
  HostCosts slow_to_meet;
  slow_to_meet.shared_round_ns = 3'300;
  HostCosts quick_to_meet;
  quick_to_meet.shared_round_ns = 33;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(chosen_by({std::nullopt, std::nullopt, std::nullopt}, rank, 16 << 10), "shm two-shot");
    EXPECT_EQ(chosen_by({std::nullopt, slow_to_meet, quick_to_meet}, rank, 16 << 10), "shm one-shot");
    EXPECT_EQ(chosen_by({std::nullopt, quick_to_meet, std::nullopt}, rank, 2 << 10), "shm two-shot");
    EXPECT_EQ(chosen_by({slow_to_meet, std::nullopt, std::nullopt}, rank, 2 << 10), "shm one-shot");
  }
}

}  // namespace
}  // namespace ciranda
