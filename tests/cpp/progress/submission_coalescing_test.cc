// Which submissions run the progress loop, and which leave it to others. Time is what the test says.
#include "progress/submission_coalescing.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

using std::chrono::microseconds;
using Choice = SubmissionCoalescing::Choice;

constexpr std::size_t kSmall = 1024;

class SubmissionCoalescingTest : public ::testing::Test {
 protected:
  // A submission `later` than the last; an iteration takes no time.
  Choice submit(microseconds later, std::size_t n_bytes = kSmall) {
    now_ += later;
    const Choice choice = coalescing_.choose(n_bytes, now_);
    if (choice == Choice::kProgress) coalescing_.progressed(now_);
    return choice;
  }
  void begin_burst() {
    while (submit(microseconds(1)) != Choice::kLeaveAndWake) {
    }
  }

  SubmissionCoalescing coalescing_;
  SubmissionCoalescing::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(SubmissionCoalescingTest, WhatComesNowAndThenRunsTheLoop) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(submit(microseconds(100)), Choice::kProgress);
  EXPECT_FALSE(coalescing_.is_watched());
}

TEST_F(SubmissionCoalescingTest, TwoAtOnceWakeNobody) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(submit(microseconds(100)), Choice::kProgress);
    EXPECT_EQ(submit(microseconds(1)), Choice::kProgress);
  }
  EXPECT_FALSE(coalescing_.is_watched());
}

TEST_F(SubmissionCoalescingTest, ManyAtOnceLeaveTheirIterationsAndWakeOnce) {
  int n_iterations = 0;
  int n_wakes = 0;
  for (int i = 0; i < 1000; ++i) {
    const Choice choice = submit(microseconds(1), 16);
    n_iterations += choice == Choice::kProgress ? 1 : 0;
    n_wakes += choice == Choice::kLeaveAndWake ? 1 : 0;
  }
  EXPECT_EQ(n_wakes, 1);
  EXPECT_GT(n_iterations, 10) << "what is left travels while the rest is submitted";
  EXPECT_LT(n_iterations, 100);
}

TEST_F(SubmissionCoalescingTest, WhatIsLargeIsNotLeft) {
  begin_burst();
  EXPECT_EQ(submit(microseconds(1)), Choice::kLeave);
  EXPECT_EQ(submit(microseconds(1), 1 << 20), Choice::kProgress);
  EXPECT_EQ(submit(microseconds(1)), Choice::kLeave);
}

TEST_F(SubmissionCoalescingTest, WhatIsMuchTogetherIsNotLeft) {
  begin_burst();
  int n_left = 0;
  while (submit(microseconds(0), 32 << 10) == Choice::kLeave) ++n_left;
  EXPECT_GT(n_left, 1);
  EXPECT_LT(n_left, 100);
}

TEST_F(SubmissionCoalescingTest, IsWatchedUntilNothingIsLeftFromOneLookToTheNext) {
  begin_burst();
  EXPECT_TRUE(coalescing_.is_watched());
  int n_looks = 0;
  int n_sleeps = 0;
  const auto look = [&] {
    if (++n_looks == 1) submit(microseconds(1));
  };
  const auto sleep = [&](std::chrono::nanoseconds /*at_most*/) {
    if (++n_sleeps == 2) submit(microseconds(1));
    return true;
  };
  coalescing_.watch(look, sleep);
  EXPECT_EQ(n_looks, 3) << "one was left during the first look, one during the sleep after the second";
  EXPECT_EQ(n_sleeps, 3);
  EXPECT_FALSE(coalescing_.is_watched());
  begin_burst();
  EXPECT_TRUE(coalescing_.is_watched()) << "the next burst";
}

TEST_F(SubmissionCoalescingTest, IsWatchedNoLongerThanTheWatcherMaySleep) {
  begin_burst();
  int n_looks = 0;
  coalescing_.watch([&] { ++n_looks; }, [](auto) { return false; });
  EXPECT_EQ(n_looks, 1);
}

// So that what is left last waits for a part of the time that the burst has taken.
TEST_F(SubmissionCoalescingTest, IsLookedAtMoreRarelyTheLongerItLasts) {
  begin_burst();
  EXPECT_EQ(coalescing_.until_next_look(now_), microseconds(30)) << "the next of a burst may take as long";
  EXPECT_EQ(coalescing_.until_next_look(now_ + microseconds(100)), microseconds(50));
  EXPECT_EQ(coalescing_.until_next_look(now_ + std::chrono::milliseconds(5)), microseconds(250));
}

}  // namespace
}  // namespace ciranda
