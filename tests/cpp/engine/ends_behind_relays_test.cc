// Ends of ranks where the log goes through relays: what one rank makes of the messages of others, which are played, in
// orders that real ones come to seldom.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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

// Four ranks on two hosts: rank 0 coordinates, rank 2 is the relay of ranks 2 and 3. One is real, the others are
// played.
class EndsBehindRelays : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  void begin(int real) {
    engine_ = Engine::create(fabric_.take_mesh(real), impatient_config());
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != real) played_.at(static_cast<std::size_t>(rank)).emplace(fabric_.take_mesh(rank));
    }
  }
  PlayedRank& played(int rank) { return *played_.at(static_cast<std::size_t>(rank)); }
  // As the end of its process.
  void end(int rank) { played_.at(static_cast<std::size_t>(rank)).reset(); }
  Engine& engine() { return *engine_; }

  Engine::OperationPtr begin_sum(const std::string& name, float& value) {
    return submit_request(*engine_, request(Collective::kAllreduce, name, DataType::kFloat32, {1}, &value));
  }
  // The entry by which the sum fails on the real rank: it needs no data of the others.
  static LogEntry failure_of(const std::string& name, int rank) {
    return FailEntry{name, ErrorKind::kMismatch, "no sum of " + name, {{rank, rank}}};
  }
  static ByeMessage bye_at(std::uint64_t log_index) { return ByeMessage{{{0, log_index}}}; }
  void expect_abort(int at, int from, const std::string& text) {
    const std::optional<AbortMessage> heard = played(at).hear<AbortMessage>(from);
    ASSERT_TRUE(heard.has_value()) << "rank " << at << " hears of nothing";
    EXPECT_EQ(heard->kind, ErrorKind::kRanksLost);
    EXPECT_TRUE(contains(heard->text, text));
  }

 private:
  static LoopbackOptions two_hosts() {
    LoopbackOptions options;
    options.hosts = {"x", "x", "y", "y"};
    return options;
  }

  const Watchdog watchdog_{"ends behind relays"};
  LoopbackFabric fabric_{kRanks, two_hosts()};
  std::unique_ptr<Engine> engine_;
  std::array<std::optional<PlayedRank>, kRanks> played_;
};

TEST_F(EndsBehindRelays, OfTheRelayIsALossToThoseBehindIt) {
  begin(3);
  float value = 1;
  const auto sum = begin_sum("a", value);
  ASSERT_TRUE(played(2).hear<RequestMessage>(3).has_value());
  end(2);
  const Status status = engine().wait(sum);
  EXPECT_EQ(status.kind(), ErrorKind::kRanksLost);
  EXPECT_TRUE(contains(status.message(), "rank 2 (host y"));
}

TEST_F(EndsBehindRelays, OfARelayIsToldOn) {
  begin(0);
  end(2);
  expect_abort(1, 0, "rank 2 (host y");
}

// Whichever is seen first.
TEST_F(EndsBehindRelays, OfTwoRanksAtOnceAreToldOn) {
  begin(0);
  float value = 1;
  const auto sum = begin_sum("a", value);
  end(3);
  end(2);
  const Status status = engine().wait(sum);
  EXPECT_EQ(status.kind(), ErrorKind::kRanksLost);
  expect_abort(1, 0, "(host y");
}

// Rank 2 cannot be reached by the one that gives up.
TEST_F(EndsBehindRelays, OfTheWorldIsPassedOnWhereALinkIsCut) {
  begin(0);
  played(1).say(0, 0, AbortMessage{ErrorKind::kRanksLost, "rank 1 has lost rank 3"});
  expect_abort(2, 0, "rank 1 has lost rank 3");
}

// It has said all that it has executed before its goodbye.
TEST_F(EndsBehindRelays, OfARelayThatLeavesFirstLeavesNobodyBehind) {
  begin(3);
  float value = 1;
  const auto before = begin_sum("a", value);
  ASSERT_TRUE(played(2).hear<RequestMessage>(3).has_value());
  float late = 1;
  const auto after = begin_sum("b", late);
  played(2).say(3, 0, LogMessage{{failure_of("a", 3)}});
  played(2).say(3, 0, bye_at(1));
  EXPECT_TRUE(played(2).hear<ByeAckMessage>(3).has_value());
  end(2);
  EXPECT_EQ(engine().wait(before).kind(), ErrorKind::kMismatch);
  const Status status = engine().wait(after);
  EXPECT_EQ(status.kind(), ErrorKind::kAborted);
  EXPECT_TRUE(contains(status.message(), "rank 2 (host y"));
  EXPECT_TRUE(contains(status.message(), "has shut down"));
  for (const int rank : {0, 1}) {  // it goes on with the others
    played(rank).say(3, 0, PingMessage{});
    EXPECT_TRUE(played(rank).hear<PongMessage>(3).has_value());
  }
}

// The goodbye of a rank comes before the log that it has executed, which goes another way.
TEST_F(EndsBehindRelays, OfARankWaitForTheLogThatItHasExecuted) {
  begin(3);
  float first = 1;
  float second = 1;
  const auto executed = begin_sum("a", first);
  const auto not_executed = begin_sum("b", second);
  played(1).say(3, 0, bye_at(1));
  EXPECT_TRUE(played(1).hear<ByeAckMessage>(3).has_value());
  end(1);
  EXPECT_FALSE(engine().poll(executed));
  played(2).say(3, 0, LogMessage{{failure_of("a", 3), failure_of("b", 3)}});
  EXPECT_EQ(engine().wait(executed).kind(), ErrorKind::kMismatch);
  const Status status = engine().wait(not_executed);
  EXPECT_EQ(status.kind(), ErrorKind::kAborted);
  EXPECT_TRUE(contains(status.message(), "rank 1 (host x"));
}

}  // namespace
}  // namespace ciranda
