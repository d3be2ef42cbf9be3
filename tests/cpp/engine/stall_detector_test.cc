// StallDetector: of those that this rank waits for, who answers is not blamed for who does not.
#include "engine/stall_detector.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "engine/control_plane.hpp"
#include "engine/played_rank.hpp"
#include "text_matchers.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using std::chrono::seconds;
using testing::PlayedRank;

const TimePoint kStart = std::chrono::steady_clock::now();

class NoLanes final : public LaneMessages {
 public:
  Status on_message(int /*peer*/, LaneId /*lane*/, Message /*message*/, TimePoint /*now*/) override { return {}; }
};

LoopbackOptions of_three_hosts() {
  LoopbackOptions options;
  options.hosts = {"x", "x", "y", "y", "z", "z"};
  options.with_all_pairs = false;
  return options;
}

// Rank 0 is between the first ranks of the other hosts.
TEST(StallDetector, ARankThatIsNotConnectedIsAskedOverTheTree) {
  constexpr int kAsks = 2;
  LoopbackFabric fabric(6, of_three_hosts());
  const auto mesh = fabric.take_mesh(kAsks);
  PlayedRank between(fabric.take_mesh(0));
  ControlPlane control(*mesh, true);
  NoLanes lanes;
  control.ask(5);
  control.send();
  const auto asked = between.hear<RoutedMessage>(kAsks);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->to, 5);
  EXPECT_EQ(asked->from, kAsks);
  EXPECT_EQ(asked->kind, RoutedMessage::Kind::kPing);
  between.say(kAsks, 0, RoutedMessage{kAsks, 5, RoutedMessage::Kind::kPong});
  EXPECT_TRUE(control.receive(lanes, kStart + seconds(7)).ok());
  EXPECT_EQ(control.last_message_from(5), kStart + seconds(7));
}

// Ranks 1 and 2 are waited for, and asked at 5 and 15 s.
class StallDetectorTest : public ::testing::Test {
 protected:
  Status look_at(int second) {
    return detector_.stuck(kStart + seconds(second), [] {
      return StallDetector::Stuck{.what = "a call", .awaited = {1, 2}, .device = ""};
    });
  }
  // What ranks have said is read then.
  void receive_at(int second) { EXPECT_TRUE(control_.receive(lanes_, kStart + seconds(second)).ok()); }
  PlayedRank& rank_1() { return rank_1_; }
  PlayedRank& rank_2() { return rank_2_; }
  StallDetector& detector() { return detector_; }

 private:
  LoopbackFabric fabric_{3};
  const std::unique_ptr<Mesh> mesh_ = fabric_.take_mesh(0);
  PlayedRank rank_1_{fabric_.take_mesh(1)};
  PlayedRank rank_2_{fabric_.take_mesh(2)};
  ControlPlane control_{*mesh_, true};
  NoLanes lanes_;
  const Logger logger_{0, LogLevel::kFatal};
  Counters counters_{"", 0, 3};
  StallDetector detector_{{seconds(10), seconds(20)}, control_, logger_, counters_};
};

TEST_F(StallDetectorTest, OneThatAnswersIsNotNamedBesideOneThatDoesNot) {
  for (const int second : {0, 5, 10, 15}) ASSERT_TRUE(look_at(second).ok()) << second;
  rank_1().say(0, 0, PongMessage{});
  receive_at(16);
  const Status status = look_at(20);
  EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(contains(status.message(), "Waiting for rank 2 (")) << status.message();
  EXPECT_FALSE(contains(status.message(), "rank 1 (")) << status.message();
  EXPECT_TRUE(contains(status.message(), "stopped, or its link is cut"));
}

// Those have as long again to name themselves.
TEST_F(StallDetectorTest, ADeviceThatHasComeWaitsForThoseOfOthers) {
  const auto look_at = [&](int second, bool has_come) {
    return detector().stuck(kStart + seconds(second), [has_come] {
      return StallDetector::Stuck{.what = "a call", .awaited = {}, .device = "on GPU 0", .has_come = has_come};
    });
  };
  for (const int second : {0, 5, 10, 15, 20, 25, 30, 35}) ASSERT_TRUE(look_at(second, true).ok()) << second;
  EXPECT_TRUE(contains(look_at(40, true).message(), "This rank has come to it on GPU 0"));
  detector().moved();
  for (const int second : {0, 5, 10, 15}) ASSERT_TRUE(look_at(second, false).ok()) << second;
  EXPECT_TRUE(contains(look_at(20, false).message(), "Waiting for the tensors of rank 0"));
}

TEST_F(StallDetectorTest, AllAreNamedIfAllAnswer) {
  for (const int second : {0, 5, 10, 15, 20, 25, 30, 35}) {
    rank_1().say(0, 0, PongMessage{});
    rank_2().say(0, 0, PongMessage{});
    ASSERT_TRUE(look_at(second).ok()) << second;
    receive_at(second + 1);
  }
  const Status status = look_at(40);
  EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
  for (const char* rank : {"rank 1 (", "rank 2 ("}) EXPECT_TRUE(contains(status.message(), rank)) << status.message();
  EXPECT_TRUE(contains(status.message(), "which may wait for its device"));
}

}  // namespace
}  // namespace ciranda
