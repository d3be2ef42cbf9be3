// LaneLog: which lanes have relays, for how long a relay keeps what it gathers, and what it does at the lane's end.
// Time is what the test says.
#include "engine/lane_log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
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

using Hosts = std::vector<std::string>;

Hosts one_rank_each(int n_hosts) {
  Hosts hosts;
  for (int host = 0; host < n_hosts; ++host) hosts.push_back(std::to_string(host));
  return hosts;
}

// The log of a lane of all ranks, at one of them.
class LogAt {
 public:
  LogAt(LaneId lane, int rank, const Hosts& hosts, bool may_have_relays = true)
      : fabric_(static_cast<int>(hosts.size()), on(hosts)),
        mesh_(fabric_.take_mesh(rank)),
        mux_(*mesh_),
        lane_mesh_(*mesh_, mux_, lane, all(mesh_->size()), nullptr),
        logger_(rank, LogLevel::kWarning),
        control_(*mesh_, may_have_relays),
        log_(lane, lane_mesh_, control_, config(may_have_relays), logger_, {counters_, recorder_}) {}

  LaneLog& log() { return log_; }

 private:
  static LoopbackOptions on(const Hosts& hosts) {
    LoopbackOptions options;
    options.hosts = hosts;
    options.ring_bytes = 1024;
    return options;
  }
  static std::vector<int> all(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  static Config config(bool may_have_relays) {
    Config config;
    config.relays = may_have_relays;
    return config;
  }

  LoopbackFabric fabric_;
  std::unique_ptr<Mesh> mesh_;
  LaneMux mux_;
  LaneMesh lane_mesh_;
  const Logger logger_;
  ControlPlane control_;
  Counters counters_{"", 0, 1};
  Recorder recorder_;
  LaneLog log_;
};

constexpr LaneId kSecondLane = lane_id(kWorldSet, 1);
constexpr LaneId kLaneOfASet = lane_id(1, 0);
constexpr LaneId kLaneOfAFormedSet = lane_id(formed_set(0, 0), 0);

bool has_relays(LaneId lane, const Hosts& hosts, bool may_have_relays = true) {
  return LogAt(lane, 0, hosts, may_have_relays).log().has_relays();
}

TEST(Relays, AreInTheFirstLaneWhereAHostHasSeveralRanks) {
  EXPECT_TRUE(has_relays(0, {"x", "y", "y"}));
  EXPECT_FALSE(has_relays(0, {"x", "x", "x"}));
  EXPECT_FALSE(has_relays(0, {"x", "y", "y"}, false));
}

TEST(Relays, AreInOtherLanesWithMoreMembersThanSendEachOtherTheirInputs) {
  const Hosts eight{"x", "x", "x", "x", "y", "y", "y", "y"};
  const Hosts nine{"x", "x", "x", "x", "x", "y", "y", "y", "y"};
  for (const LaneId lane : {kSecondLane, kLaneOfASet}) {
    EXPECT_FALSE(has_relays(lane, eight));
    EXPECT_TRUE(has_relays(lane, nine));
    EXPECT_FALSE(has_relays(lane, nine, false));
    EXPECT_FALSE(has_relays(lane, Hosts(9, "x")));
  }
}

TEST(Relays, AreBetweenHostsOfOneRankIfThereAreMany) {
  for (const LaneId lane : {LaneId{0}, kSecondLane, kLaneOfASet}) {
    EXPECT_FALSE(has_relays(lane, one_rank_each(33)));
    EXPECT_TRUE(has_relays(lane, one_rank_each(34)));
  }
}

// Its ranks come and go one by one, and a relay may be the last to come.
TEST(Relays, AreInNoSetThatRanksFormByThemselves) { EXPECT_FALSE(has_relays(kLaneOfAFormedSet, one_rank_each(34))); }

TEST(Relays, PassTheLogDownATree) {
  LogAt last(0, 33, one_rank_each(34));
  EXPECT_EQ(last.log().above(), (std::vector<int>{4, 0}));
  LogAt in_second_lane(kSecondLane, 8, {"x", "x", "x", "x", "x", "y", "y", "y", "y"});
  EXPECT_EQ(in_second_lane.log().above(), (std::vector<int>{5, 0}));
}

// What is reported to a coordinator that has ended its lane is answered by the end, and must not be waited for.
TEST(Relays, ReportNothingToACoordinatorThatHasEndedTheLane) {
  LogAt coordinator(kLaneOfASet, 0, {"x", "x", "x", "x", "x", "y", "y", "y", "y"});
  LaneLog& log = coordinator.log();
  ASSERT_TRUE(log.has_relays());
  log.end(Status::aborted("removed"));
  const LogMessage last = log.write(true, 0, kBegin);
  ASSERT_EQ(last.entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<EndEntry>(last.entries.front()));
  log.report(RequestMessage{"late", a_sum(), true, true}, kBegin);
  const Result<bool> passed = log.pass_on(kBegin);
  EXPECT_TRUE(passed.ok()) << passed.status().message();
  EXPECT_FALSE(passed.value());
  EXPECT_FALSE(log.due().has_value());
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
  ControlPlane control_{*mesh_, true};
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
