#include "transport/silence.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Silence::Clock::time_point kStart{seconds(1000)};

Silence::Sight in_vain(milliseconds last_answer_ago) { return {true, last_answer_ago}; }

TEST(Silence, CountsFromTheFirstSightOfWhatWasSentInVain) {
  Silence silence;
  EXPECT_EQ(silence.lasts(in_vain(seconds(900)), kStart), seconds(0));
  EXPECT_EQ(silence.lasts(in_vain(seconds(907)), kStart + seconds(7)), seconds(7));
  EXPECT_EQ(silence.lasts(in_vain(seconds(930)), kStart + seconds(30)), seconds(30));
}

TEST(Silence, AnAnswerEndsIt) {
  Silence silence;
  silence.lasts(in_vain(seconds(1)), kStart);
  EXPECT_EQ(silence.lasts({false, milliseconds(0)}, kStart + seconds(20)), seconds(0));
  EXPECT_EQ(silence.lasts(in_vain(seconds(1)), kStart + seconds(21)), seconds(0));
}

TEST(Silence, CountsFromTheLastAnswerWhereOneCameBetweenTwoLooks) {
  Silence silence;
  silence.lasts(in_vain(seconds(1)), kStart);
  EXPECT_EQ(silence.lasts(in_vain(seconds(2)), kStart + seconds(10)), seconds(2));
  EXPECT_EQ(silence.lasts(in_vain(seconds(7)), kStart + seconds(15)), seconds(7));
}

}  // namespace
}  // namespace ciranda
