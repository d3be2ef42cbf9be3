// Any one message is lost, which no transport does: what waits for it, or for what would have come of it, finds an end
// all the same, because the coordinator has patience with nobody, nor a rank with the coordinator.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "agree/signatures.hpp"
#include "agree/simulated_world.hpp"
#include "repetitions.hpp"

namespace ciranda::testing {
namespace {

struct Case {
  std::string name;
  std::vector<Script> scripts;
  Direct direct = Direct::kNot;
  bool reports_groups = false;
  std::vector<std::string> hosts = {};
  std::size_t cache_capacity = 65536;
};

Script repeated(std::size_t n_times, const Script& steps) {
  Script script;
  for (std::size_t i = 0; i < n_times; ++i) script.insert(script.end(), steps.begin(), steps.end());
  return script;
}

std::vector<Case> cases() {
  const Wait wait;
  const Join join;
  const ScriptedCall a{"a", allreduce({4})};
  const ScriptedCall b{"b", allreduce({4})};
  const ScriptedCall c{"c", allreduce({3})};
  const ScriptedCall g{"g", allgather({2, 2})};
  const ScriptedCall longer{"a", allreduce({5})};
  const ScriptedCall later_a{"a", allreduce({4}), true};
  const ScriptedCall later_b{"b", allreduce({4}), true};
  const Script calls = repeated(3, {a, g, wait});
  const Script more = repeated(3, {a, b, wait, g, c, wait});
  const Script grouped = repeated(8, {later_a, later_b, wait});
  const Script direct = repeated(4, {a, b, wait});
  const Script joins{a, wait, join, a, wait};
  const Script joins_later{a, wait, a, b, wait, join, a, wait};
  const std::vector<std::string> two_hosts{"x", "x", "y", "y"};
  return {
      {"Calls", {calls, calls, calls}},
      {"CallsOfMoreNamesThanHaveSlots", {more, more, more}, Direct::kNot, false, {}, 2},
      {"CallsThatFail", {{a, wait, a, a, wait, a, wait}, {a, wait, longer, wait, a, wait}}},
      {"Joins", {joins, joins_later, joins}},
      {"Groups", {grouped, grouped, grouped}, Direct::kNot, true},
      {"Relays", {grouped, grouped, grouped, grouped}, Direct::kNot, true, two_hosts},
      {"CallsThroughRelays", {calls, calls, calls, calls}, Direct::kNot, false, two_hosts},
      {"DirectRounds", {direct, direct, direct}, Direct::kByMessages},
      {"DirectRoundsToWhichNotAllCome",
       {{a, wait, a, wait, longer, wait}, {a, wait, a, a, wait}, {a, wait, a, wait}},
       Direct::kByMessages},
      {"DirectRoundsOfWhichSomeAreMissed",
       {{a, wait, a, wait, a, wait}, {a, wait, a, wait}, {a, wait, a, wait}},
       Direct::kByMessages},
      {"DirectRoundsAndJoins", {joins, joins_later, joins}, Direct::kByMessages},
  };
}

class LostMessages : public ::testing::TestWithParam<Case> {
 protected:
  struct End {
    std::string wrong;  // with it, or with the lack of it
    std::string broken;
    std::size_t n_messages;
  };

  // The events come in an order that the seed gives.
  static End run(std::uint64_t seed, WorldOptions options) {
    options.coordinator.stall.shutdown = std::chrono::seconds(1);
    options.coordinator.direct = GetParam().direct;
    options.coordinator.reports_groups = GetParam().reports_groups;
    options.hosts = GetParam().hosts;
    options.coordinator.cache_capacity = GetParam().cache_capacity;
    SimulatedWorld world(GetParam().scripts, options);
    std::mt19937_64 random(seed);
    for (auto events = world.possible_events(); !events.empty(); events = world.possible_events()) {
      world.perform(events[random() % events.size()]);
    }
    world.let_time_pass();
    return {world.wrong().empty() ? world.unended() : world.wrong(), world.broken(), world.n_messages()};
  }
};

TEST_P(LostMessages, LeaveNobodyWaiting) {
  for (std::uint64_t seed = 1; seed <= repetitions(20); ++seed) {
    const std::size_t n_messages = run(seed, {}).n_messages;
    ASSERT_GT(n_messages, 5U);
    for (std::size_t lost = 0; lost < n_messages; ++lost) {
      WorldOptions options;
      options.lost = lost;
      ASSERT_EQ(run(seed, options).wrong, "") << "message " << lost << " of " << n_messages << ", seed " << seed;
    }
  }
}

// Without one that is lost all comes to an end by itself, though the coordinator loses patience at any moment.
TEST_P(LostMessages, AreNotSeenWhereThereAreNone) {
  for (std::uint64_t seed = 1; seed <= repetitions(500); ++seed) {
    WorldOptions options;
    options.n_stalls = seed % 4;
    const End end = run(seed, options);
    ASSERT_EQ(end.wrong, "") << "seed " << seed;
    ASSERT_EQ(end.broken, "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LostMessages, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace ciranda::testing
