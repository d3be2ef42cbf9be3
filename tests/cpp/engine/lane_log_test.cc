// LaneLog: for how long a relay keeps what it gathers. Time is what the test says.
#include "engine/lane_log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "transport/lane_mux.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};
// As long as it may take in all, whatever comes meanwhile.
constexpr milliseconds kLongest{1000};

Signature a_sum() {
  Signature signature;
  signature.collective = Collective::kAllreduce;
  signature.tensors = {{DataType::kFloat32, {4}}};
  return signature;
}

// Rank 2, the relay of ranks 2 and 3. There is a group of one name.
class RelayWindow : public ::testing::Test {
 protected:
  RelayWindow() {
    const PlanEntry plan{1, {{0}}};
    const ExecuteGroupsEntry first_use{1, {0}, Check::kNone};
    EXPECT_TRUE(log_.on_message(0, LogMessage{{plan, first_use}}, kBegin).ok());
  }

  static LoopbackOptions hosts() {
    LoopbackOptions options;
    options.hosts = {"x", "x", "y", "y"};
    return options;
  }
  static Config with_relays() {
    Config config;
    config.relays = true;
    return config;
  }

  // Whether anything was passed on.
  bool passes_on(TimePoint now) {
    const Result<bool> passed = log_.pass_on(now);
    EXPECT_TRUE(passed.ok()) << passed.status().message();
    return passed.value();
  }

  LoopbackFabric fabric_{4, hosts()};
  std::unique_ptr<Mesh> mesh_ = fabric_.take_mesh(2);
  LaneMux mux_{*mesh_};
  LaneMesh lane_mesh_{*mesh_, mux_, 0, {0, 1, 2, 3}, nullptr};
  const Logger logger_{2, LogLevel::kWarning};
  ControlPlane control_{*mesh_};
  Counters counters_{"", 0, 1};
  Recorder recorder_;
  LaneLog log_{0, lane_mesh_, control_, with_relays(), logger_, {counters_, recorder_}};
};

TEST_F(RelayWindow, EndsForWhatItsHostsOtherRankDoesNotReport) {
  ASSERT_TRUE(log_.has_relays());
  log_.report(GroupsMessage{1, {0}}, kBegin);
  EXPECT_FALSE(passes_on(kBegin)) << "it is gathered";
  const auto due = log_.due();
  ASSERT_TRUE(due.has_value());
  EXPECT_LE(*due, kBegin + kLongest);
  EXPECT_FALSE(passes_on(*due - milliseconds(1)));
  EXPECT_TRUE(passes_on(*due));
}

// As each new name is: the rest of the group is then likely to be on its way, but need not be.
TEST_F(RelayWindow, EndsAlsoWhileMoreIsPassedOn) {
  TimePoint now = kBegin;
  log_.report(GroupsMessage{1, {0}}, now);
  EXPECT_FALSE(passes_on(now));
  while (log_.due() && now < kBegin + 2 * kLongest) {
    now += milliseconds(20);
    log_.report(RequestMessage{"new at " + std::to_string((now - kBegin).count()), a_sum(), true, true}, now);
    EXPECT_TRUE(passes_on(now));
  }
  EXPECT_GT(now - kBegin, milliseconds(100));
  EXPECT_LE(now - kBegin, kLongest);
}

}  // namespace
}  // namespace ciranda
