// What calls took decides, for each size, after all ranks have told what they measured; and nothing else does.
#include "backend/online_autotuner.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>

namespace ciranda {
namespace {

constexpr std::uint32_t kClass = 7;
constexpr std::size_t kWays = 3;
constexpr std::uint64_t kCallsOfAWay = OnlineAutotuner::kTurns * OnlineAutotuner::kCallsATurn;
constexpr std::uint64_t kCallsOfTrial = kCallsOfAWay * kWays;
constexpr int kTimedInTrial = static_cast<int>(OnlineAutotuner::kTurns * OnlineAutotuner::kTimedATurn * kWays);

// Ranks that make the same calls and hear each other; each call takes what `ns_of` says.
class World {
 public:
  using NsOf = std::function<std::uint64_t(std::size_t rank, std::size_t way)>;

  explicit World(std::size_t n_ranks, NsOf ns_of) : ranks_(n_ranks), ns_of_(std::move(ns_of)) {}

  // The way that all ranks take; -1 for the model's.
  int call(std::size_t n_ways = kWays, std::uint32_t of_class = kClass) {
    std::optional<int> taken;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const OnlineAutotuner::Choice call = ranks_[rank].next({of_class, n_ways, 0});
      const int way = call.candidate ? static_cast<int>(*call.candidate) : -1;
      EXPECT_EQ(taken.value_or(way), way);
      taken = way;
      EXPECT_TRUE(call.candidate || !call.sample);
      if (call.sample) ranks_[rank].took(*call.sample, ns_of_(rank, *call.candidate));
      n_timed_ += call.sample && rank == 0 ? 1 : 0;
    }
    tell_each_other();
    return *taken;
  }
  void calls(std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) call();
  }
  void ns_of(NsOf other) { ns_of_ = std::move(other); }
  int n_timed() const { return n_timed_; }
  const OnlineAutotuner& rank(std::size_t rank) const { return ranks_[rank]; }

 private:
  void tell_each_other() {
    std::vector<std::uint64_t> all;
    for (const OnlineAutotuner& rank : ranks_) {
      EXPECT_EQ(rank.news().size(), ranks_.front().news().size());
      const auto news = rank.news();
      all.insert(all.end(), news.begin(), news.end());
    }
    if (ranks_.front().news().empty()) return;
    for (OnlineAutotuner& rank : ranks_) rank.conclude(all);
  }

  std::vector<OnlineAutotuner> ranks_;
  NsOf ns_of_;
  int n_timed_ = 0;
};

World::NsOf times(std::array<std::uint64_t, kWays> ns) {
  return [ns](std::size_t, std::size_t way) { return ns[way]; };
}

TEST(OnlineAutotunerTest, TheModelChoosesUntilATrialIsOver) {
  World world(2, times({1000, 500, 800}));
  for (std::uint64_t i = 0; i < OnlineAutotuner::kFirstTrial; ++i) EXPECT_EQ(world.call(), -1);
  std::array<std::uint64_t, kWays> n_calls{};
  for (std::uint64_t i = 0; i < kCallsOfTrial; ++i) ++n_calls.at(static_cast<std::size_t>(world.call()));
  for (const std::uint64_t n : n_calls) EXPECT_EQ(n, kCallsOfAWay);
  EXPECT_EQ(world.n_timed(), kTimedInTrial);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(world.call(), 1);
  EXPECT_EQ(world.n_timed(), kTimedInTrial) << "no clock is read but in trials";
  EXPECT_EQ(world.rank(0).took_ns(kClass, 2), 800U);
}

TEST(OnlineAutotunerTest, LessThanAnEighthFasterIsNoReasonToChange) {
  World world(2, times({1000, 875, 1000}));
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  EXPECT_EQ(world.call(), -1);
  EXPECT_EQ(world.rank(1).took_ns(kClass, 1), 875U);
}

TEST(OnlineAutotunerTest, AnEndlessJobChangesItsMindAFewTimes) {
  World world(1, times({1000, 500, 800}));
  int before = -1;
  int n_changes = 0;
  constexpr std::uint64_t kCalls = 100'000;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const int way = world.call();
    if (i % 7 == 0) world.ns_of(times({1000 + i % 500, 500 + i % 400, 800 + i % 300}));  // whatever the machine does
    if (i % 1000 != 999) continue;
    n_changes += way != before ? 1 : 0;
    before = way;
  }
  EXPECT_LE(n_changes, 4);
  EXPECT_EQ(world.n_timed(), 4 * kTimedInTrial) << "at calls 16, 256, 4096 and 65536";
}

TEST(OnlineAutotunerTest, AWayThatHasBecomeSlowIsLeft) {
  World world(2, times({1000, 500, 800}));
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  EXPECT_EQ(world.call(), 1);
  world.ns_of(times({1000, 5000, 900}));
  world.calls(OnlineAutotuner::kFirstTrial * OnlineAutotuner::kBetweenTrials + kCallsOfTrial);
  EXPECT_EQ(world.call(), 2);
}

TEST(OnlineAutotunerTest, TheModelIsTakenAtItsWordAgainWhenItIsRight) {
  World world(2, times({1000, 500, 800}));
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  world.ns_of(times({1000, 5000, 1000}));
  world.calls(OnlineAutotuner::kFirstTrial * OnlineAutotuner::kBetweenTrials + kCallsOfTrial);
  EXPECT_EQ(world.call(), -1);
}

TEST(OnlineAutotunerTest, WhatTookMoreThanTwiceAsLongIsNotTriedAgain) {
  World world(2, times({1000, 2001, 2000}));
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  for (int i = 0; i < 1000; ++i) EXPECT_NE(world.call(), 1);
  EXPECT_EQ(world.n_timed(), kTimedInTrial / 3 * 5);
  EXPECT_EQ(world.rank(0).took_ns(kClass, 1), 2001U);
}

// Who comes first measures how late the others are. Who came last differs from call to call.
TEST(OnlineAutotunerTest, LatenessDoesNotCount) {
  std::mt19937 random(5);
  std::size_t late = 0;
  World world(4, [&](std::size_t rank, std::size_t way) -> std::uint64_t {
    if (rank == 0) late = random() % 4;
    return (way == 2 ? 300U : 400U) + (rank == late ? 0 : random() % 100'000);
  });
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  EXPECT_EQ(world.call(), 2);
  EXPECT_EQ(world.rank(3).took_ns(kClass, 2), 300U);
}

TEST(OnlineAutotunerTest, DisturbedCallsDoNotCount) {
  std::mt19937 random(1);
  World world(1, [&](std::size_t, std::size_t way) -> std::uint64_t {
    return (way == 1 ? 500 : 1000) * (random() % 2 == 0 ? 1 : 100);
  });
  world.calls(OnlineAutotuner::kFirstTrial + kCallsOfTrial);
  EXPECT_EQ(world.call(), 1);
  EXPECT_EQ(world.rank(0).took_ns(kClass, 0), 1000U);
  EXPECT_EQ(world.rank(0).took_ns(kClass, 1), 500U);
}

TEST(OnlineAutotunerTest, ClassesAreJudgedEachForItselfAlsoWhenTheirTrialsEndTogether) {
  World world(2, [](std::size_t, std::size_t way) { return way == 1 ? 500U : 1000U; });
  World other(2, [](std::size_t, std::size_t way) { return way == 1 ? 1000U : 500U; });
  for (std::uint64_t i = 0; i < OnlineAutotuner::kFirstTrial + kCallsOfTrial; ++i) {
    world.call();
    world.call(1, kClass + 1);
    world.call(2, kClass + 2);
  }
  EXPECT_EQ(world.call(), 1);
  EXPECT_EQ(world.call(1, kClass + 1), -1) << "where there is one way, there is nothing to try";
  EXPECT_EQ(world.call(2, kClass + 2), 1);
}

TEST(OnlineAutotunerTest, TrialsThatEndTogetherAreToldTogether) {
  std::array<OnlineAutotuner, 2> ranks;
  for (std::uint64_t i = 0; i < OnlineAutotuner::kFirstTrial + 2 * kCallsOfAWay; ++i) {
    for (const std::uint32_t of_class : {1U, 2U}) {
      for (OnlineAutotuner& rank : ranks) {
        const OnlineAutotuner::Choice call = rank.next({of_class, 2, 0});
        if (!call.sample) continue;
        const bool is_fast = *call.candidate == (of_class == 1 ? 1U : 0U);
        rank.took(*call.sample, of_class * (is_fast ? 100 : 200));
      }
    }
  }
  auto all = ranks[0].news();
  const auto others = ranks[1].news();
  all.insert(all.end(), others.begin(), others.end());
  EXPECT_EQ(all.size(), 2U * 2U * 2U * OnlineAutotuner::kTurns * OnlineAutotuner::kTimedATurn);
  for (OnlineAutotuner& rank : ranks) {
    rank.conclude(all);
    EXPECT_TRUE(rank.news().empty());
    EXPECT_EQ(rank.preferred(1), 1U);
    EXPECT_EQ(rank.preferred(2), std::nullopt);
    EXPECT_EQ(rank.took_ns(1, 1), 100U);
    EXPECT_EQ(rank.took_ns(2, 1), 400U);
  }
}

}  // namespace
}  // namespace ciranda
