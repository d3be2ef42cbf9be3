#include "transport/silence.hpp"

#include <gtest/gtest.h>
#include <linux/tcp.h>

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{8};
constexpr seconds kLook = kLimit / Silence::kLooks;

Silence::Sight in_vain(milliseconds last_answer_ago) { return {true, false, true, last_answer_ago}; }
Silence::Sight no_room(milliseconds last_answer_ago) { return {false, true, true, last_answer_ago}; }
Silence::Sight answered() { return {}; }

// Looks at a connection, from time to time.
class Looks {
 public:
  bool see(const Silence::Sight& sight, Silence::Clock::duration later = kLook) {
    now_ += later;
    return silence_.is_too_long(sight, now_, kLimit);
  }

 private:
  Silence silence_;
  Silence::Clock::time_point now_{seconds(1000)};
};

// Data that was sent again, or a probe: to a peer without room, or to which nothing was to be sent, there is no data.
TEST(Silence, IsOfDataAndOfProbes) {
  tcp_info info{};
  info.tcpi_last_ack_recv = 7;
  EXPECT_FALSE(Silence::sight_in(info).was_probed_in_vain);
  EXPECT_FALSE(Silence::sight_in(info).has_outstanding);
  EXPECT_EQ(Silence::sight_in(info).last_answer_ago, milliseconds(7));
  info.tcpi_probes = 1;
  info.tcpi_notsent_bytes = 1;
  EXPECT_TRUE(Silence::sight_in(info).was_probed_in_vain);
  EXPECT_FALSE(Silence::sight_in(info).was_sent_in_vain);
  EXPECT_TRUE(Silence::sight_in(info).has_outstanding);
  info = {};
  info.tcpi_unacked = 1;
  EXPECT_FALSE(Silence::sight_in(info).was_sent_in_vain);
  EXPECT_TRUE(Silence::sight_in(info).has_outstanding);
  info.tcpi_retransmits = 1;
  EXPECT_TRUE(Silence::sight_in(info).was_sent_in_vain);
}

TEST(Silence, IsNotTakenForLongerThanTheLimit) {
  Looks looks;
  EXPECT_FALSE(looks.see(answered()));
  for (int second = 1; second < 7; ++second) EXPECT_FALSE(looks.see(in_vain(seconds(second))));
  EXPECT_TRUE(looks.see(in_vain(seconds(7))));  // at the next look it would be too late
}

TEST(Silence, IsSeenSeveralTimesHoweverOldTheLastAnswerIs) {
  Looks looks;
  EXPECT_FALSE(looks.see(in_vain(seconds(900))));
  EXPECT_FALSE(looks.see(in_vain(seconds(901))));
  EXPECT_FALSE(looks.see(in_vain(seconds(902))));
  EXPECT_TRUE(looks.see(in_vain(seconds(903))));
}

// The kernel asks less and less often, and some of its questions get no answer: it is enough that one does.
TEST(Silence, OfAPeerWithoutRoomLastsForTheWholeLimit) {
  Looks looks;
  for (int second = 100; second < 108; ++second) EXPECT_FALSE(looks.see(no_room(seconds(second))));
  EXPECT_TRUE(looks.see(no_room(seconds(108))));
}

TEST(Silence, AnAnswerEndsIt) {
  Looks looks;
  for (int second = 900; second < 903; ++second) EXPECT_FALSE(looks.see(in_vain(seconds(second))));
  EXPECT_FALSE(looks.see(answered()));
  EXPECT_FALSE(looks.see(in_vain(seconds(900))));
}

TEST(Silence, CountsFromTheLastAnswerWhereOneCameBetweenTwoLooks) {
  Looks looks;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(looks.see(in_vain(seconds(1))));
}

// A machine that stands still for a minute finds the last answer a minute old, and no time to repeat anything.
TEST(Silence, CountsNoTimeInWhichNobodyLooked) {
  Looks looks;
  looks.see(answered());
  EXPECT_FALSE(looks.see(in_vain(seconds(0))));
  EXPECT_FALSE(looks.see(in_vain(seconds(60)), seconds(60)));
  EXPECT_FALSE(looks.see(answered()));
}

}  // namespace
}  // namespace ciranda
