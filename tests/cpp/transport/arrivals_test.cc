#include "transport/arrivals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "repetitions.hpp"

namespace ciranda {
namespace {

TEST(Arrivals, IsMetWhenAllHaveCome) {
  std::atomic<std::uint64_t> word{0};
  Arrivals arrivals(word, 3);
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_FALSE(arrivals.is_complete(1));
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_TRUE(arrivals.is_complete(1));
  EXPECT_FALSE(arrivals.close(1));
  EXPECT_FALSE(arrivals.is_closed(1));
}

TEST(Arrivals, IsMetForNobodyOnceItIsClosed) {
  std::atomic<std::uint64_t> word{0};
  Arrivals arrivals(word, 2);
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_TRUE(arrivals.close(1));
  EXPECT_TRUE(arrivals.is_closed(1));
  EXPECT_FALSE(arrivals.arrive(1));
  EXPECT_FALSE(arrivals.is_complete(1));
}

// Several members may find, each for itself, that they will not come.
TEST(Arrivals, StaysClosedHoweverOftenItIsClosed) {
  for (const int n_closings : {2, 3, 4, 5}) {
    std::atomic<std::uint64_t> word{0};
    Arrivals arrivals(word, 2);
    EXPECT_TRUE(arrivals.arrive(1));
    for (int i = 0; i < n_closings; ++i) {
      EXPECT_TRUE(arrivals.close(1));
      EXPECT_TRUE(arrivals.is_closed(1));
      EXPECT_FALSE(arrivals.is_complete(1));
    }
    EXPECT_FALSE(arrivals.arrive(1));
    EXPECT_FALSE(arrivals.is_complete(2));
    EXPECT_TRUE(arrivals.arrive(2));
    EXPECT_TRUE(arrivals.arrive(2));
    EXPECT_TRUE(arrivals.is_complete(2));
  }
}

TEST(Arrivals, MayBeClosedBeforeAnybodyComes) {
  std::atomic<std::uint64_t> word{0};
  Arrivals arrivals(word, 2);
  EXPECT_TRUE(arrivals.close(5));
  EXPECT_FALSE(arrivals.arrive(5));
  EXPECT_TRUE(arrivals.arrive(6));
}

// Who comes to a round has done with those before: that the word has gone on says that they were met.
TEST(Arrivals, StaysMetWhenTheNextRoundBegins) {
  std::atomic<std::uint64_t> word{0};
  Arrivals arrivals(word, 2);
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_TRUE(arrivals.arrive(1));
  EXPECT_TRUE(arrivals.arrive(2));
  EXPECT_TRUE(arrivals.is_complete(1));
  EXPECT_FALSE(arrivals.is_complete(2));
  EXPECT_TRUE(arrivals.close(2));
  EXPECT_TRUE(arrivals.is_complete(1));
}

TEST(Arrivals, HoldsTheMostMembersThatThereMayBe) {
  std::atomic<std::uint64_t> word{0};
  Arrivals arrivals(word, Arrivals::kMaxMembers);
  for (int member = 0; member < Arrivals::kMaxMembers; ++member) EXPECT_TRUE(arrivals.arrive(7));
  EXPECT_TRUE(arrivals.is_complete(7));
  EXPECT_FALSE(arrivals.is_complete(8));
}

// Members on threads of their own, each of which comes, and in some rounds loses patience. All must end each round the
// same way, and see what the others wrote before they came.
TEST(Arrivals, EndsTheSameWayForAll) {
  constexpr std::size_t kMembers = 3;
  constexpr std::uint64_t kRounds = repetitions(4'000);
  std::atomic<std::uint64_t> word{0};
  std::array<std::array<std::uint64_t, 2>, kMembers> contributed{};
  std::array<std::vector<bool>, kMembers> was_complete;
  std::atomic<bool> is_torn{false};
  std::array<std::atomic<std::uint64_t>, kMembers> n_done{};
  const auto member = [&](std::size_t self) {
    std::mt19937_64 random(self);
    Arrivals arrivals(word, kMembers);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t patience = random() % 4 == 0 ? random() % 20 : ~std::uint64_t{0};
      contributed[self][round % 2] = round;
      bool is_complete = arrivals.arrive(round);
      for (std::uint64_t looks = 0; is_complete && !arrivals.is_complete(round); ++looks) {
        is_complete = looks < patience ? !arrivals.is_closed(round) : !arrivals.close(round);
        std::this_thread::yield();
      }
      for (std::size_t other = 0; is_complete && other < kMembers; ++other) {
        if (contributed[other][round % 2] != round) is_torn = true;
      }
      was_complete[self].push_back(is_complete);
      // As the coordinator's log does: after a round that was closed nobody goes on before all know it.
      n_done[self] = round;
      while (!is_complete && std::any_of(n_done.begin(), n_done.end(), [round](const auto& n) { return n < round; })) {
        std::this_thread::yield();
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < kMembers; ++self) threads.emplace_back(member, self);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_torn);
  EXPECT_EQ(was_complete[0], was_complete[1]);
  EXPECT_EQ(was_complete[0], was_complete[2]);
  EXPECT_GT(std::count(was_complete[0].begin(), was_complete[0].end(), true), 0);
  EXPECT_GT(std::count(was_complete[0].begin(), was_complete[0].end(), false), 0);
}

}  // namespace
}  // namespace ciranda
