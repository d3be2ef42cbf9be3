// What agreement costs a crowd of ranks: messages and bytes are counted exactly, so that a change that costs more
// shows.
#include "agree/crowd.hpp"

#include <gtest/gtest.h>

namespace ciranda::testing {
namespace {

constexpr int kTurns = 3;
constexpr std::size_t kPlannedStep = 4;  // from this one on, in steps of the same names

CrowdOptions crowd_of(int n_ranks) {
  CrowdOptions options;
  options.n_ranks = n_ranks;
  options.n_tensors = 30;
  options.tensors_per_turn = options.n_tensors / kTurns;
  return options;
}

class CrowdOf : public ::testing::TestWithParam<int> {};

TEST_P(CrowdOf, AgreesAndItsMessagesStayFew) {
  const CrowdOptions options = crowd_of(GetParam());
  Crowd crowd(options);
  const auto n_others = static_cast<std::size_t>(options.n_ranks - 1);
  const StepCost first = crowd.step();
  EXPECT_EQ(crowd.broken(), "");
  EXPECT_EQ(first.n_messages_in, n_others * (30 + 1));  // a request each, and that it waits
  StepCost cached;
  for (std::size_t step = 1; step <= kPlannedStep; ++step) cached = crowd.step();
  EXPECT_EQ(crowd.broken(), "");
  EXPECT_EQ(cached.n_messages_in, n_others * (kTurns + 1));  // one a turn, and that it waits
  EXPECT_LT(cached.n_bytes_in * 10, first.n_bytes_in);
  EXPECT_LT(cached.n_bytes_out * 3, first.n_bytes_out);
  EXPECT_EQ(cached.n_messages_out % n_others, 0U);
  EXPECT_LE(cached.n_entries, 30U);
  // The network is crossed there and back, by messages that take at most 3/2 of the average.
  EXPECT_LE(cached.wait, 3 * options.network_delay + options.coordinator_turn);
}

TEST_P(CrowdOf, IsTheSameEveryTime) {
  Crowd one(crowd_of(GetParam()));
  Crowd other(crowd_of(GetParam()));
  for (int step = 0; step < 3; ++step) {
    const StepCost a = one.step();
    const StepCost b = other.step();
    EXPECT_EQ(a.n_bytes_out, b.n_bytes_out);
    EXPECT_EQ(a.n_entries, b.n_entries);
    EXPECT_EQ(a.wait, b.wait);
  }
}

// --- with groups and relays

StepCost planned_step(const CrowdOptions& options) {
  Crowd crowd(options);
  StepCost cost;
  for (int step = 0; step < 8; ++step) cost = crowd.step();
  EXPECT_EQ(crowd.broken(), "");
  return cost;
}

CrowdOptions with_relays(int n_ranks, int n_tensors) {
  CrowdOptions options;
  options.n_ranks = n_ranks;
  options.n_tensors = n_tensors;
  options.step_bytes = 8 << 20;
  options.tensors_per_turn = n_tensors / 10;
  options.reports_groups = true;
  options.has_relays = true;
  return options;
}

TEST(CrowdWithGroups, ReportsByNumber) {
  CrowdOptions options = with_relays(64, 200);
  options.has_relays = false;
  const StepCost by_group = planned_step(options);
  options.reports_groups = false;
  const StepCost by_cache_id = planned_step(options);
  EXPECT_LT(by_group.n_bytes_in * 3, by_cache_id.n_bytes_in);
  EXPECT_LT(by_group.n_bytes_out * 3, by_cache_id.n_bytes_out);
}

TEST(CrowdWithRelays, AHostSendsFewMessagesHoweverManyTensorsThereAre) {
  const StepCost few = planned_step(with_relays(256, 40));
  const StepCost many = planned_step(with_relays(256, 400));
  for (const StepCost& cost : {few, many}) {
    EXPECT_EQ(cost.n_let_go, 0U);
    EXPECT_LE(cost.most_from_a_host, 10U);  // one a group, and that its ranks wait
  }
  EXPECT_LE(many.n_bytes_in, few.n_bytes_in * 3 / 2);
  EXPECT_LE(many.n_messages_in, few.n_messages_in * 3 / 2);
  EXPECT_LE(many.n_bytes_out, few.n_bytes_out * 3 / 2);
}

TEST(CrowdWithRelays, AHostSendsAsManyMessagesHoweverManyHostsThereAre) {
  EXPECT_LE(planned_step(with_relays(512, 40)).most_from_a_host,
            planned_step(with_relays(128, 40)).most_from_a_host + 1);
}

// Two hops there, and two back.
TEST(CrowdWithRelays, TakesTwoRoundTripsAtMost) {
  const CrowdOptions options = with_relays(512, 100);
  const Nanoseconds slowest_round_trip = 2 * (options.network_delay * 3 / 2);
  const StepCost cost = planned_step(options);
  EXPECT_LE(cost.wait, 2 * slowest_round_trip + options.coordinator_turn + 10 * options.host_delay);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CrowdOf, ::testing::Values(2, 64, 256));

}  // namespace
}  // namespace ciranda::testing
