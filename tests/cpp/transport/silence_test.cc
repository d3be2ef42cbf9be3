#include "transport/silence.hpp"

#include <gtest/gtest.h>
#include <netinet/tcp.h>

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Silence::Clock::time_point kStart{seconds(1000)};

Silence::Sight in_vain(milliseconds last_answer_ago) { return {true, last_answer_ago}; }

// Data that was sent again, or a probe: to a peer without room, or to which nothing was to be sent, there is no data.
TEST(Silence, IsOfDataAndOfProbes) {
  tcp_info info{};
  info.tcpi_last_ack_recv = 7;
  EXPECT_FALSE(Silence::sight_in(info).was_sent_in_vain);
  EXPECT_EQ(Silence::sight_in(info).last_answer_ago, milliseconds(7));
  info.tcpi_probes = 1;
  EXPECT_TRUE(Silence::sight_in(info).was_sent_in_vain);
  info.tcpi_probes = 0;
  info.tcpi_retransmits = 1;
  EXPECT_TRUE(Silence::sight_in(info).was_sent_in_vain);
}

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
