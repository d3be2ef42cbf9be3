#include "base/pair_costs.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ciranda {
namespace {

PairCosts pair(std::uint64_t line_ns, std::uint64_t cached_fs, std::uint64_t past_caches_fs, std::uint64_t read_fs) {
  return {line_ns, {cached_fs, past_caches_fs}, read_fs};
}

TEST(PairCosts, ALineOfAtMost120NanosecondsIsNear) {
  EXPECT_EQ(distance_of(25), Distance::kNear);
  EXPECT_EQ(distance_of(120), Distance::kNear);
  EXPECT_EQ(distance_of(121), Distance::kFar);
  EXPECT_EQ(to_string(distance_of(55)), "near");
  EXPECT_EQ(to_string(distance_of(250)), "far");
}

TEST(PairCosts, TheSlowestIsTheMostOfEach) {
  EXPECT_EQ(slowest_of({}), std::nullopt);
  EXPECT_EQ(slowest_of(std::vector<std::optional<PairCosts>>{std::nullopt, std::nullopt}), std::nullopt);
  const std::vector<std::optional<PairCosts>> measured{std::nullopt, pair(1, 20, 3, 40), pair(10, 2, 30, 4)};
  EXPECT_EQ(slowest_of(measured), pair(10, 20, 30, 40));
}

TEST(PairCosts, MemorysPartOfTheHostsCostsFollows) {
  HostCosts expected;
  expected.shared_round_ns = 110;
  expected.copy_fs = 15'000;
  expected.reduce_fs = 27'500;
  EXPECT_EQ(host_costs_of(pair(55, 70'000, 110'000, 30'000)), expected);
}

// As the cost model counts: one shot hands all over; two shot a half, and the half of the result is read.
TEST(PairCosts, OneShotAndTwoShotCostWhatCrosses) {
  const HostCosts cached = host_costs_of(pair(220, 240'000, 230'000, 80'000));
  EXPECT_EQ(cached.copy_fs + 2 * cached.reduce_fs, 240'000U);
  EXPECT_EQ(cached.copy_fs * 3 / 2 + cached.reduce_fs, 240'000U / 2 + 80'000U / 2);
}

TEST(PairCosts, HostsCostsAreWithinTheirBounds) {
  EXPECT_TRUE(are_within_bounds(host_costs_of(pair(0, 0, 0, 0))));
  EXPECT_TRUE(are_within_bounds(host_costs_of(pair(kMostNs, kMostFs * 2, kMostFs * 2, kMostFs * 2))));
}

}  // namespace
}  // namespace ciranda
