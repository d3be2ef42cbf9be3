#include "transport/delivery.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{4};
constexpr int kMost = 8;  // looks, one a second, in twice the limit

class DeliveryTest : public ::testing::Test {
 protected:
  DeliveryTest() { EXPECT_FALSE(look(0)); }

  // Some time later; all that was sent has been acknowledged.
  bool look(std::uint64_t n_sent, Delivery::Clock::duration later = seconds(1)) {
    now_ += later;
    return delivery_.is_held_back(n_sent, now_, kLimit);
  }
  bool hear_and_look(std::uint64_t n_received, std::uint64_t n_sent, Delivery::Clock::duration later = seconds(1)) {
    delivery_.note_received(n_received);
    return look(n_sent, later);
  }

  Delivery delivery_;
  Delivery::Clock::time_point now_{seconds(1000)};
};

TEST_F(DeliveryTest, WhatDoesNotComeForTwiceTheLimitIsHeldBack) {
  EXPECT_FALSE(hear_and_look(5, 7));
  for (int i = 1; i < kMost; ++i) EXPECT_FALSE(hear_and_look(5, 7));
  EXPECT_TRUE(hear_and_look(5, 7));
  EXPECT_EQ(delivery_.n_awaited(), 7U);
  EXPECT_EQ(delivery_.n_received(), 5U);
}

TEST_F(DeliveryTest, NothingIsHeldBackWhileRecordsCome) {
  EXPECT_FALSE(look(10));
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_FALSE(hear_and_look(i / 4, 25));
}

// Others are sent meanwhile: those awaited have come.
TEST_F(DeliveryTest, NothingIsHeldBackWhileThereIsMoreToCome) {
  for (std::uint64_t i = 1; i < 100; ++i) EXPECT_FALSE(hear_and_look(i, i + 1));
}

TEST_F(DeliveryTest, OneThatSaysNothingIsWaitedFor) {
  EXPECT_FALSE(look(1));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(1));
}

// What it has said before may be older than the record.
TEST_F(DeliveryTest, WhatWasSaidBeforeIsNoAnswer) {
  EXPECT_FALSE(hear_and_look(0, 1));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(1));
  EXPECT_FALSE(hear_and_look(1, 2));
}

TEST_F(DeliveryTest, WhatIsNotAcknowledgedIsNotAwaited) {
  for (int i = 0; i < 100; ++i) {
    delivery_.note_received(3);
    EXPECT_FALSE(delivery_.is_held_back(std::nullopt, now_ += seconds(1), kLimit));
  }
}

// This machine, or the other, has stood still.
TEST_F(DeliveryTest, OneLateAnswerIsNotEnough) {
  EXPECT_FALSE(look(1));
  EXPECT_FALSE(hear_and_look(0, 1, seconds(1000)));
  EXPECT_FALSE(hear_and_look(0, 1, seconds(1000)));
  EXPECT_FALSE(hear_and_look(0, 1, seconds(1000)));
  EXPECT_TRUE(hear_and_look(0, 1, seconds(1000)));
}

}  // namespace
}  // namespace ciranda
