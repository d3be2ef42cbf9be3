// Ends of ranks that are not all connected with each other: what one rank makes of the messages of others, which are
// played, in orders that real ones come to seldom.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/played_rank.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::impatient_config;
using testing::PlayedRank;
using testing::request;
using testing::Watchdog;

// Six ranks on three hosts of two. Ranks 2 and 4 are connected with rank 0, and those of a host with each other. One is
// real, the others are played.
class EndsOverTheTree : public ::testing::Test {
 protected:
  static constexpr int kRanks = 6;

  void begin(int real) {
    real_ = real;
    engine_ = Engine::create(fabric_.take_mesh(real), impatient_config());
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != real) played_.at(static_cast<std::size_t>(rank)).emplace(fabric_.take_mesh(rank));
    }
  }
  PlayedRank& played(int rank) { return *played_.at(static_cast<std::size_t>(rank)); }
  // As the end of its process.
  void end(int rank) { played_.at(static_cast<std::size_t>(rank)).reset(); }
  Engine& engine() { return *engine_; }
  LoopbackFabric& fabric() { return fabric_; }

  void say(int from, const Message& message) { played(from).say(real_, 0, message); }
  void leave(int rank) { say(rank, ByeMessage{}); }
  void tell_of(int from, const std::vector<int>& ranks) {
    DeparturesMessage news;
    for (const int rank : ranks) news.departures.push_back({rank, {}});
    say(from, news);
  }
  template <typename Kind>
  std::optional<Kind> hear(int at) {
    return played(at).hear<Kind>(real_);
  }
  // The ranks of which that one is told next.
  std::vector<int> told(int at) {
    std::vector<int> ranks;
    const auto news = hear<DeparturesMessage>(at);
    if (!news) ranks.push_back(-1);
    for (std::size_t i = 0; news && i < news->departures.size(); ++i) ranks.push_back(news->departures[i].rank);
    return ranks;
  }
  void expect_no_ack(int at) { EXPECT_TRUE(played(at).is_silent_about<ByeAckMessage>(real_)) << "rank " << at; }
  void expect_ack(int at) { EXPECT_TRUE(hear<ByeAckMessage>(at).has_value()) << "rank " << at; }
  void expect_alive(int asking) {
    say(asking, PingMessage{});
    EXPECT_TRUE(hear<PongMessage>(asking).has_value());
  }

 private:
  static LoopbackOptions three_hosts() {
    LoopbackOptions options;
    options.hosts = {"x", "x", "y", "y", "z", "z"};
    options.with_all_pairs = false;
    return options;
  }

  const Watchdog watchdog_{"ends over the tree"};
  LoopbackFabric fabric_{kRanks, three_hosts()};
  int real_ = 0;
  std::unique_ptr<Engine> engine_;
  std::array<std::optional<PlayedRank>, kRanks> played_;
};

using Told = std::vector<int>;

TEST_F(EndsOverTheTree, AGoodbyeIsToldUpAndDown) {
  begin(2);
  leave(3);
  expect_ack(3);
  EXPECT_EQ(told(0), Told{3});
  say(0, ByeAckMessage{});
  tell_of(0, {5, 1});
  expect_ack(0);
  expect_alive(0);
}

TEST_F(EndsOverTheTree, AGoodbyeIsToldToThoseBelowOnce) {
  begin(0);
  leave(2);
  expect_ack(2);
  EXPECT_EQ(told(4), Told{2});
  tell_of(4, {2, 5});
  expect_ack(4);
  expect_alive(1);
  EXPECT_TRUE(played(4).is_silent_about<DeparturesMessage>(0));
}

// Whose goodbye comes from a rank that it has not left yet may be told twice, by two.
TEST_F(EndsOverTheTree, ARankBelowOneThatLeavesConnectsAboveBeforeItAcknowledges) {
  begin(3);
  fabric().hold_connections();
  leave(2);
  expect_no_ack(2);
  fabric().let_connect();
  expect_ack(2);
  EXPECT_EQ(told(0), Told{2});
  say(0, DeparturesMessage{});
  end(2);
  expect_ack(0);
  tell_of(0, {4});
  expect_ack(0);
  expect_alive(0);
}

TEST_F(EndsOverTheTree, OneWithNobodyAboveAcknowledgesAtOnceAndIsConnectedTo) {
  begin(1);
  fabric().hold_connections();
  leave(0);
  expect_ack(0);
  end(0);
  fabric().let_connect();
  played(2).connect(1);
  say(2, DeparturesMessage{{{0, {}}, {3, {}}}});
  EXPECT_EQ(told(2), Told{0});
  expect_ack(2);
  played(4).connect(1);
  say(4, DeparturesMessage{});
  EXPECT_EQ(told(4), (Told{0, 3}));
}

TEST_F(EndsOverTheTree, TwoThatLeaveAtOnceAreBridgedInAnyOrder) {
  begin(3);
  fabric().hold_connections();
  leave(2);         // it connects to rank 0
  tell_of(2, {0});  // then to rank 1
  expect_ack(2);    // of the news
  expect_no_ack(2);
  fabric().let_connect();
  expect_ack(2);
  EXPECT_EQ(told(1), (Told{2, 0}));
}

TEST_F(EndsOverTheTree, TheOneAboveItMayHaveLeftFirst) {
  begin(3);
  fabric().hold_connections();
  tell_of(2, {0});
  expect_ack(2);
  leave(2);
  expect_no_ack(2);
  fabric().let_connect();
  expect_ack(2);
  EXPECT_EQ(told(1), (Told{0, 2}));
}

TEST_F(EndsOverTheTree, ARankThatLeavesNeedsThoseAboveUntilThoseBelowDoNotNeedIt) {
  begin(2);
  std::thread leaving([this] { engine().shutdown(); });
  EXPECT_TRUE(hear<ByeMessage>(0).has_value());
  EXPECT_TRUE(hear<ByeMessage>(3).has_value());
  leave(0);
  expect_no_ack(0);
  EXPECT_EQ(told(3), Told{0});
  tell_of(3, {3});  // what comes from below still goes up
  expect_ack(3);
  EXPECT_EQ(told(0), Told{3});
  say(3, ByeAckMessage{});  // of the news
  expect_no_ack(0);
  say(3, ByeAckMessage{});
  expect_ack(0);
  for (int i = 0; i < 2; ++i) say(0, ByeAckMessage{});
  leaving.join();
  EXPECT_FALSE(played(1).is_connected(2));  // which would be above it
}

TEST_F(EndsOverTheTree, OneBelowThatLeavesIsAcknowledgedWhoeverIsAbove) {
  begin(2);
  fabric().hold_connections();
  leave(0);
  expect_no_ack(0);
  leave(3);
  expect_ack(3);
  expect_no_ack(0);
  fabric().let_connect();
  expect_ack(0);
}

TEST_F(EndsOverTheTree, ARankThatLeavesDoesNotNeedThoseBelowThatReadNothingMore) {
  begin(2);
  std::thread leaving([this] { engine().shutdown(); });
  EXPECT_TRUE(hear<ByeMessage>(3).has_value());
  leave(0);
  expect_no_ack(0);
  say(3, GoneMessage{});
  expect_ack(0);
  for (int i = 0; i < 2; ++i) say(0, ByeAckMessage{});
  leaving.join();
}

TEST_F(EndsOverTheTree, ARankThatLeavesWaitsForNobodyWhoReadsNothingMore) {
  begin(2);
  leave(3);
  expect_ack(3);
  say(3, GoneMessage{});
  std::thread leaving([this] { engine().shutdown(); });
  EXPECT_TRUE(hear<ByeMessage>(0).has_value());
  leave(0);
  expect_ack(0);
  for (int i = 0; i < 2; ++i) say(0, ByeAckMessage{});
  EXPECT_TRUE(hear<GoneMessage>(0).has_value());
  leaving.join();
}

TEST_F(EndsOverTheTree, ARankThatLeavesSaysSoToOneThatConnectsMeanwhile) {
  begin(1);
  std::thread leaving([this] { engine().shutdown(); });
  EXPECT_TRUE(hear<ByeMessage>(0).has_value());
  played(4).connect(1);
  EXPECT_EQ(told(4), Told{});
  EXPECT_TRUE(hear<ByeMessage>(4).has_value());
  for (int i = 0; i < 2; ++i) say(4, ByeAckMessage{});
  say(0, ByeAckMessage{});
  leaving.join();
}

TEST_F(EndsOverTheTree, WhatAPairSaysFirstIsSentWhenItIsConnected) {
  begin(3);
  fabric().hold_connections();
  const auto set = engine().form_set({1, 3}, 0);
  ASSERT_TRUE(set.ok());
  float value = 1;
  Request sum = request(Collective::kAllreduce, "a", DataType::kFloat32, {1}, &value);
  sum.process_set = set.value();
  const auto operation = submit_request(engine(), std::move(sum));
  expect_alive(2);
  fabric().let_connect();
  EXPECT_EQ(told(1), Told{});
  EXPECT_TRUE(hear<RequestMessage>(1).has_value());
  say(2, AbortMessage{ErrorKind::kRanksLost, "rank 5 is gone"});
  EXPECT_TRUE(contains(engine().wait(operation).message(), "rank 5 is gone"));
}

TEST_F(EndsOverTheTree, ALossIsToldOnWithItsText) {
  begin(2);
  float value = 1;
  const auto sum = submit_request(engine(), request(Collective::kAllreduce, "a", DataType::kFloat32, {1}, &value));
  say(0, AbortMessage{ErrorKind::kRanksLost, "rank 5 is gone"});
  EXPECT_TRUE(contains(engine().wait(sum).message(), "rank 5 is gone"));
  const auto heard = hear<AbortMessage>(3);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->text, "rank 5 is gone");
}

TEST_F(EndsOverTheTree, ALossIsToldToOneThatConnectsAfterwards) {
  begin(1);
  say(0, AbortMessage{ErrorKind::kRanksLost, "rank 5 is gone"});
  played(4).connect(1);
  const auto heard = hear<AbortMessage>(4);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->text, "rank 5 is gone");
}

TEST_F(EndsOverTheTree, QuestionsGoOverTheTree) {
  begin(0);
  say(2, RoutedMessage{5, 3, RoutedMessage::Kind::kPing});
  const auto asked = hear<RoutedMessage>(4);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->to, 5);
  EXPECT_EQ(asked->from, 3);
  say(2, RoutedMessage{0, 3, RoutedMessage::Kind::kPing});
  const auto answer = hear<RoutedMessage>(2);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->to, 3);
  EXPECT_EQ(answer->kind, RoutedMessage::Kind::kPong);
}

TEST_F(EndsOverTheTree, TheHigherOfTwoConnectsWhenItIsAsked) {
  begin(5);
  say(4, RoutedMessage{5, 1, RoutedMessage::Kind::kConnect});
  EXPECT_EQ(told(1), Told{});
}

// Nobody asks again, and both would wait for ever.
TEST_F(EndsOverTheTree, WhatFindsNoWayGoesOnWhenThereIsOne) {
  begin(2);
  fabric().hold_connections();
  leave(0);  // above it is rank 1 now, and the connection waits
  for (int i = 0; i < 2; ++i) say(3, RoutedMessage{5, 3, RoutedMessage::Kind::kConnect});
  say(3, RoutedMessage{4, 3, RoutedMessage::Kind::kConnect});
  expect_alive(3);
  tell_of(3, {4});
  expect_ack(3);
  fabric().let_connect();
  const auto asked = hear<RoutedMessage>(1);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->to, 5);
  EXPECT_EQ(asked->from, 3);
  say(1, DeparturesMessage{});
  EXPECT_TRUE(played(1).is_silent_about<RoutedMessage>(2));
}

// Those that are above it in the tree would have heard of a loss.
TEST_F(EndsOverTheTree, OneThatEndsBeforeItHasSaidAnythingMayHaveLeft) {
  begin(1);
  played(5).connect(1);
  EXPECT_EQ(told(5), Told{});
  end(5);
  expect_alive(0);
  tell_of(0, {5});
  expect_ack(0);
  expect_alive(0);
}

// Which leaves because of another, of which news comes over more hops.
TEST_F(EndsOverTheTree, TheOneThatLeftFirstIsNamedWhoeverIsHeardOfFirst) {
  begin(1);
  float value = 1;
  const auto sum = submit_request(engine(), request(Collective::kAllreduce, "a", DataType::kFloat32, {1}, &value));
  say(0, ByeMessage{{{0, 0, 4}}});
  EXPECT_TRUE(contains(engine().wait(sum).message(), "rank 4 (host z"));
  std::thread leaving([this] { engine().shutdown(); });
  const auto heard = hear<ByeMessage>(0);
  ASSERT_TRUE(heard.has_value());
  ASSERT_EQ(heard->lanes.size(), 1U);
  EXPECT_EQ(heard->lanes.front().first_leaver, 4);
  say(0, ByeAckMessage{});
  leaving.join();
}

TEST_F(EndsOverTheTree, OneThatIsNoRankHasNotLeftFirst) {
  begin(1);
  float value = 1;
  const auto sum = submit_request(engine(), request(Collective::kAllreduce, "a", DataType::kFloat32, {1}, &value));
  say(0, ByeMessage{{{0, 0, kRanks}}});
  EXPECT_TRUE(contains(engine().wait(sum).message(), "tells of a rank that is none"));
}

TEST_F(EndsOverTheTree, OneThatIsNoRankIsNotTalkedOf) {
  begin(1);
  float value = 1;
  const auto sum = submit_request(engine(), request(Collective::kAllreduce, "a", DataType::kFloat32, {1}, &value));
  tell_of(0, {kRanks});
  EXPECT_TRUE(contains(engine().wait(sum).message(), "tells of a rank that is none"));
}

}  // namespace
}  // namespace ciranda
