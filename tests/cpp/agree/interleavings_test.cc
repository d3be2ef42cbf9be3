// Every order in which 2 or 3 ranks with a few calls each can be heard, answered and go on, as far as orders differ.
//
// Orders that differ only in the order of independent events have the same end; the search follows one of each such
// class ("sleep sets": P. Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agree/signatures.hpp"
#include "agree/simulated_world.hpp"

namespace ciranda::testing {
namespace {

class Search {
 public:
  // All begin with their first n_known steps, in one order.
  Search(std::vector<Script> scripts, const WorldOptions& options, std::size_t n_known = 0)
      : scripts_(std::move(scripts)), options_(options), n_known_(n_known) {}

  // The first violation found, with the events that lead to it; empty if there is none.
  std::string run() {
    WorldPtr world = start();
    n_group_entries_before_ = world->n_group_entries();
    visit(std::move(world), {});
    return found_;
  }
  // Likewise; and when nothing can happen any more the coordinator's patience alone must bring an end to every call.
  std::string run_to_an_end() {
    must_end_ = true;
    return run();
  }
  std::size_t n_orders() const { return n_orders_; }
  std::size_t least_executed() const { return least_executed_; }
  std::size_t n_orders_with_groups() const { return n_orders_with_groups_; }
  std::size_t n_orders_with_rounds() const { return n_orders_with_rounds_; }

 private:
  using WorldPtr = std::unique_ptr<SimulatedWorld>;

  WorldPtr start() const {
    auto world = std::make_unique<SimulatedWorld>(scripts_, options_);
    if (n_known_ > 0) world->begin_with(n_known_);
    return world;
  }

  WorldPtr replay() const {
    WorldPtr world = start();
    for (const Event& event : path_) world->perform(event);
    return world;
  }

  struct Branch {
    Event event;
    std::vector<Event> asleep;
  };

  // `asleep`: events whose consequences have been seen on another branch.
  static std::vector<Branch> branches(const SimulatedWorld& world, const std::vector<Event>& events,
                                      const std::vector<Event>& asleep) {
    std::vector<Footprint> footprints;
    std::vector<bool> is_seen;
    for (const Event& event : events) {
      footprints.push_back(world.footprint(event));
      is_seen.push_back(std::find(asleep.begin(), asleep.end(), event) != asleep.end());
    }
    std::vector<Branch> found;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (is_seen[i]) continue;
      Branch& branch = found.emplace_back(Branch{events[i], {}});
      for (std::size_t j = 0; j < events.size(); ++j) {
        if (is_seen[j] && footprints[i].is_apart_from(footprints[j])) branch.asleep.push_back(events[j]);
      }
      is_seen[i] = true;
    }
    return found;
  }

  void visit(WorldPtr world, const std::vector<Event>& asleep) {
    if (!found_.empty()) return;
    const std::vector<Event> events = world->possible_events();
    if (events.empty()) return judge(*world);
    const std::vector<Branch> all = branches(*world, events, asleep);
    for (const Branch& branch : all) {
      WorldPtr next = &branch == &all.back() ? std::move(world) : replay();
      next->perform(branch.event);
      path_.push_back(branch.event);
      visit(std::move(next), branch.asleep);
      path_.pop_back();
    }
  }

  static std::string with_time(SimulatedWorld& world) {
    world.let_time_pass();
    const std::string wrong = world.violation();
    return wrong.empty() ? world.unended() : wrong;
  }

  void judge(SimulatedWorld& world) {
    ++n_orders_;
    if (world.n_group_entries() > n_group_entries_before_) ++n_orders_with_groups_;
    if (world.n_direct() > 0) ++n_orders_with_rounds_;
    least_executed_ = std::min(least_executed_, world.n_executed());
    std::string wrong = world.violation();
    if (wrong.empty() && must_end_) wrong = with_time(world);
    if (wrong.empty() || !found_.empty()) return;
    found_ = wrong;
    for (const Event& event : path_) found_ += "\n  " + to_string(event);
  }

  std::vector<Script> scripts_;
  WorldOptions options_;
  std::size_t n_known_;
  bool must_end_ = false;
  std::vector<Event> path_;
  std::size_t n_orders_ = 0;
  std::size_t n_orders_with_groups_ = 0;
  std::size_t n_orders_with_rounds_ = 0;
  std::size_t n_group_entries_before_ = 0;
  std::size_t least_executed_ = SIZE_MAX;
  std::string found_;
};

ScriptedCall call(std::string name, Signature signature) { return {std::move(name), std::move(signature)}; }
ScriptedCall call(std::string name) { return call(std::move(name), allreduce({4})); }
ScriptedCall made_up(std::string name) { return {std::move(name), allreduce({4}), true, false}; }

struct Scenario {
  std::string name;
  std::vector<Script> scripts;
  std::size_t n_executed = 0;  // at least, in every order
  bool writes_log_at_once = false;
  std::vector<std::string> hosts = {};  // with relays
  int fan_out = 0;
  bool is_taken_down = false;
  std::size_t n_stalls = 0;
};

std::vector<Scenario> two_ranks() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  const auto gather = [](std::int64_t n) { return call("g", allgather({n, 2})); };
  return {
      {"EqualCalls", {{a, b}, {a, b}}, 2},
      {"OppositeOrders", {{a, b}, {b, a}}, 2},
      {"OppositeOrdersAgain", {{a, b, wait, a}, {b, a, wait, a}}, 3, true},
      {"AgainBySlot", {{a, wait, a, wait, a}, {a, wait, a, wait, a}}, 3, true},
      {"AgainChanged", {{a, wait, longer, wait, longer}, {a, wait, longer, wait, longer}}, 3, true},
      {"GatherChangesOnOneRank",
       {{gather(1), wait, gather(2), wait, gather(2)}, {gather(3), wait, gather(3), wait, gather(0)}},
       3,
       true},
      {"NamesWithoutSlot",
       {{made_up("x"), wait, made_up("x"), made_up("y")}, {made_up("x"), wait, made_up("y"), made_up("x")}},
       3,
       true},
      {"ShapesDiffer", {{a, wait, a}, {longer, wait, a}}, 1},
      {"KindsDiffer", {{a, wait, a}, {call("a", barrier()), wait, a}}, 1},
      {"RootsDiffer", {{call("a", broadcast({4}, 0)), b}, {call("a", broadcast({4}, 1)), b}}, 1},
      {"DifferAfterAgreeing", {{a, wait, a, wait, a}, {a, wait, longer, wait, a}}, 2, true},
      {"DifferWithoutWaiting", {{a, b}, {longer, b}}, 1},
      {"BothCallTwice", {{a, a}, {a, a}}, 0},
      {"BothCallTwiceThenAgain", {{a, a, wait, a}, {a, a, wait, a}}, 1, true},
      {"BothCallThrice", {{a, a, a}, {a, a, a}}, 0, true},
      {"OneCallsTwice", {{a, a, wait, b}, {a, wait, b}}, 1},
      {"CallsTwiceDifferently", {{a, longer}, {longer, a}}, 0},
      {"OneNeverCalls", {{a, b}, {b}}, 1},
      {"OneNeverCallsWhatTheOtherRepeats", {{a, a, b}, {b}}, 1},
      {"NothingInCommon", {{a}, {b}}, 0},
      {"OneJoinsEarly", {{a, wait, b}, {a, wait, join}}, 2},
      {"BothJoin", {{a, wait, a, join}, {a, join}}, 2, true},
      {"JoinsThenWorksOn", {{a, wait, b, join, a, wait, a}, {a, join, a, wait, a}}, 4, true},
      {"JoinsWithoutWork", {{gather(2), wait, join, gather(2)}, {join, gather(1)}}, 2},
      {"JoinsWhileAnErrorIsOwed", {{a, join, a}, {longer, join, a}}, 1, true},
      {"JoinsAfterADuplicate", {{a, a, join, a}, {a, join, a}}, 0, true},
      {"TheRootHasJoined", {{call("x", broadcast({4}, 1)), b, join}, {b, join}}, 1},
      {"NamesWithoutSlotMeetAJoin", {{made_up("x"), wait, made_up("y"), join, a}, {made_up("x"), join, a}}, 3, true},
  };
}

std::vector<Scenario> three_ranks() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  return {
      {"EqualCalls", {{a, b}, {a, b}, {a, b}}, 2, true},
      {"MixedOrders", {{a, b}, {b, a}, {a, b}}, 2, true},
      {"AgainBySlot", {{a, wait, a}, {a, wait, a}, {a, wait, a}}, 2, true},
      {"OneDiffersThenAgain", {{a, wait, a}, {longer, wait, a}, {a, wait, a}}, 1, true},
      {"AllDiffer", {{a}, {longer}, {call("a", barrier())}}, 0},
      {"AllCallTwice", {{a, a}, {a, a}, {a, a}}, 0, true},
      {"OneCallsTwice", {{a, b}, {a, a, b}, {a, b}}, 1, true},
      {"OneNeverCalls", {{a, b}, {b}, {b, a}}, 1, true},
      {"TwoDifferAndOneNeverCalls", {{a, b}, {longer, b}, {b}}, 1, true},
      {"JoinOneAfterTheOther", {{a, b, join}, {a, join}, {join}}, 2, true},
      {"TwoDifferAndOneHasJoined", {{a, join, b}, {longer, join, b}, {join, b}}, 1, true},
  };
}

// In a lane that may be taken down at any moment.
std::vector<Scenario> taken_down() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall c = call("c");
  const ScriptedCall longer = call("a", allreduce({5}));
  std::vector<Scenario> scenarios{
      {"TwoCall", {{a, b}, {b, a}}, 0, true},
      {"TwoCallAgain", {{a, wait, a}, {a, wait, a}}, 0, true},
      {"TwoDiffer", {{a, wait, a}, {longer, wait, a}}, 0, true},
      {"OneOfTwoCallsTwice", {{a, a, wait, b}, {a, wait, b}}, 0, true},
      {"OneOfTwoJoins", {{a, wait, b, join}, {a, join, b}}, 0, true},
      {"TwoCallThreeNames", {{a, b, c}, {c, a, b}}, 0, true},
      {"ThreeCall", {{a}, {a}, {a}}, 0, true},
      {"OneOfThreeDiffers", {{a}, {longer}, {a}}, 0, true},
      {"OneOfThreeJoins", {{a}, {a, join}, {join}}, 0, true},
  };
  for (Scenario& scenario : scenarios) scenario.is_taken_down = true;
  return scenarios;
}

// One rank or two shut down while others go on.
std::vector<Scenario> leaving() {
  const Wait wait;
  const Join join;
  const Leave leave;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall c = call("c");
  const ScriptedCall longer = call("a", allreduce({5}));
  const std::vector<std::string> pair{"x", "y", "y"};
  return {
      {"OneOfTwo", {{a, b, wait, a}, {a, b, leave}}, 0, true},
      {"TheCoordinator", {{a, b, leave}, {a, b, wait, a}}, 0, true},
      {"AfterADifference", {{a, wait, b}, {longer, leave}}, 0, true},
      {"AfterAJoin", {{a, b, join}, {a, wait, b, leave}}, 0, true},
      {"WithThreeNames", {{a, b, c}, {c, b, a, leave}}, 0, true},
      {"OneOfThree", {{a, b}, {b, leave}, {a, b}}, 0, true},
      {"TwoOfThree", {{a, b}, {a, leave}, {a, b, leave}}, 0, true},
      {"ARelay", {{a, b}, {a, leave}, {a, b}}, 0, true, pair},
      {"ARankBehindARelay", {{a, b}, {a, b}, {a, leave}}, 0, true, pair},
      {"TheCoordinatorOfRelays", {{a, leave}, {a, b}, {a}}, 0, true, pair},
  };
}

class Interleavings : public ::testing::TestWithParam<Scenario> {};

TEST_P(Interleavings, KeepTheAgreement) {
  const Scenario& scenario = GetParam();
  WorldOptions options;
  options.takes_eagerly = scenario.writes_log_at_once;
  options.hosts = scenario.hosts;
  options.is_taken_down = scenario.is_taken_down;
  Search search(scenario.scripts, options);
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.least_executed(), scenario.n_executed);
  RecordProperty("orders", static_cast<int>(search.n_orders()));
}

std::string scenario_name(const ::testing::TestParamInfo<Scenario>& scenario) { return scenario.param.name; }
INSTANTIATE_TEST_SUITE_P(TwoRanks, Interleavings, ::testing::ValuesIn(two_ranks()), scenario_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanks, Interleavings, ::testing::ValuesIn(three_ranks()), scenario_name);
INSTANTIATE_TEST_SUITE_P(TakenDown, Interleavings, ::testing::ValuesIn(taken_down()), scenario_name);
INSTANTIATE_TEST_SUITE_P(Leaving, Interleavings, ::testing::ValuesIn(leaving()), scenario_name);

// --- when a and b are a planned group

// Calls and waits, after which they are, and have been reported as one. (Cache ids are given in the first step, and
// seen in the next two; the plan comes in the fourth.)
constexpr std::size_t kPlanned = 15;

ScriptedCall deferrable_call(const std::string& name, Signature signature = allreduce({4})) {
  return {name, std::move(signature), true};
}

Script after_planning(const Script& rest) {
  const Wait wait;
  const ScriptedCall a = deferrable_call("a");
  const ScriptedCall b = deferrable_call("b");
  Script script;
  while (script.size() < kPlanned) script.insert(script.end(), {a, b, wait});
  script.insert(script.end(), rest.begin(), rest.end());
  script.emplace_back(wait);  // what is deferrable may else stay behind for the rest of its group
  return script;
}

std::vector<Scenario> two_ranks_with_groups() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = deferrable_call("a");
  const ScriptedCall b = deferrable_call("b");
  const ScriptedCall c = deferrable_call("c");
  const ScriptedCall longer = deferrable_call("b", allreduce({5}));
  return {
      {"EqualCalls", {{a, b}, {a, b}}, 12},
      {"EqualCallsTwice", {{a, b, wait, a, b}, {a, b, wait, a, b}}, 14, true},
      {"OppositeOrders", {{a, b, wait, b, a}, {b, a, wait, a, b}}, 14, true},
      {"OneWaitsInBetween", {{a, wait, b}, {a, b}}, 12},
      {"NeitherWaits", {{a}, {a}}, 11},
      {"OneNeverCallsTheSecond", {{a, b, wait}, {a}}, 11},
      {"OneChanges", {{a, b, wait, a, b}, {a, longer, wait, a, b}}, 13, true},
      {"BothChange", {{a, longer, wait, a, longer}, {a, longer, wait, a, longer}}, 14, true},
      {"NotDeferrable", {{a, call("b")}, {a, b}}, 12},
      {"AStrangerBetween", {{a, c, b}, {a, c, b}}, 13, true},
      {"OneCallsTwice", {{a, a, b, wait, b}, {a, b, wait, b}}, 11, true},
      {"BothCallTwice", {{a, a}, {a, a}}, 10},
      {"OneJoins", {{a, b, wait, join, a, b}, {join, a, b}}, 14},
      {"OneJoinsInBetween", {{a, b, join, a, b}, {a, join, a, b}}, 13, true},
  };
}

std::vector<Scenario> three_ranks_with_groups() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = deferrable_call("a");
  const ScriptedCall b = deferrable_call("b");
  const ScriptedCall longer = deferrable_call("b", allreduce({5}));
  return {
      {"EqualCalls", {{a, b}, {a, b}, {a, b}}, 12, true},
      {"OneWaitsInBetween", {{a, b}, {a, wait, b}, {b, a}}, 12, true},
      {"OneChanges", {{b}, {longer}, {b}}, 10, true},
      {"OneNeverCalls", {{a, b}, {b}, {b, a}}, 11, true},
      {"OneJoins", {{a, b, join}, {a, join}, {join}}, 12, true},
  };
}

// Through relays: of two hosts, one below the other, and of three in a row.
std::vector<Scenario> with_relays() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = deferrable_call("a");
  const ScriptedCall b = deferrable_call("b");
  const ScriptedCall longer = deferrable_call("b", allreduce({5}));
  const std::vector<std::string> two{"x", "y"};
  const std::vector<std::string> pair{"x", "y", "y"};
  return {
      {"EqualCalls", {{a, b}, {a, b}}, 12, true, two},
      {"OneWaitsInBetween", {{a, wait, b}, {a, b}}, 12, true, two},
      {"OneNeverCallsTheSecond", {{a, b}, {a}}, 11, true, two},
      {"OneChanges", {{a, b, wait, b}, {a, longer, wait, b}}, 12, true, two},
      {"OneCallsTwice", {{a, a, b}, {a, b}}, 11, true, two},
      {"BothCallTwice", {{a, a}, {a, a}}, 10, true, two},
      {"OneJoins", {{a, b, join, a}, {join, a}}, 13, true, two},
      {"EqualCallsOfThree", {{a, b}, {a, b}, {a, b}}, 12, true, pair},
      {"OneOfThreeChanges", {{b}, {b}, {longer}}, 10, true, pair},
      {"OneOfThreeJoins", {{a, b, join}, {a, join}, {join}}, 12, true, pair},
      {"OneOfThreeNeverCalls", {{a, b}, {a, b}, {b}}, 11, true, pair},
      {"OneInARowWaits", {{a, b}, {a, b}, {a, wait, b}}, 12, true, {"x", "y", "z"}, 1},
  };
}

class InterleavingsOfGroups : public ::testing::TestWithParam<Scenario> {};

TEST_P(InterleavingsOfGroups, KeepTheAgreement) {
  Scenario scenario = GetParam();
  for (Script& script : scenario.scripts) script = after_planning(script);
  WorldOptions options;
  options.coordinator.reports_groups = true;
  options.hosts = scenario.hosts;
  options.fan_out = scenario.fan_out;
  options.takes_eagerly = scenario.writes_log_at_once;
  Search search(scenario.scripts, options, kPlanned);
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.least_executed(), scenario.n_executed);
  if (scenario.name.starts_with("Equal")) {
    EXPECT_EQ(search.n_orders_with_groups(), search.n_orders());
  }
  RecordProperty("orders", static_cast<int>(search.n_orders()));
}

INSTANTIATE_TEST_SUITE_P(TwoRanks, InterleavingsOfGroups, ::testing::ValuesIn(two_ranks_with_groups()), scenario_name);
INSTANTIATE_TEST_SUITE_P(Relays, InterleavingsOfGroups, ::testing::ValuesIn(with_relays()), scenario_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanks, InterleavingsOfGroups, ::testing::ValuesIn(three_ranks_with_groups()),
                         scenario_name);

// --- when ranks meet for a and b

// Calls and waits, after which both names are open to rounds.
Script after_opening(const Script& rest) {
  const Wait wait;
  Script script{call("a"), wait, call("b"), wait};
  script.insert(script.end(), rest.begin(), rest.end());
  return script;
}

std::vector<Scenario> two_ranks_that_meet() {
  const Wait wait;
  const Join join;
  const Leave leave;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  ScriptedCall deferrable = a;
  deferrable.is_deferrable = true;
  std::vector<Scenario> scenarios{
      {"Twice", {{a, wait, a}, {a, wait, a}}, 4},
      {"OppositeOrders", {{a, b}, {b, a}}, 4},
      {"OneHurriesOn", {{a, wait, b}, {a, b}}, 4},
      {"OneNeverWaits", {{a, wait, a}, {deferrable, wait, a}}, 4},
      {"OneChanges", {{a, wait, a}, {longer, wait, a}}, 3},
      {"BothChange", {{longer, wait, longer}, {longer, wait, longer}}, 4},
      {"OneCallsTwice", {{a, a, wait}, {a, wait}}, 2},
      {"BothCallTwice", {{a, a}, {a, a}}, 2},
      {"OneNeverCalls", {{a, b, wait}, {b}}, 3},
      {"OneJoins", {{a, wait, a, join}, {a, join}}, 4},
      {"OneJoinsAtOnce", {{a, join, a}, {join, a}}, 4},
      {"OneLeaves", {{a, b, wait}, {a, leave}}, 2},
      {"TheCoordinatorLeaves", {{a, b, leave}, {a, wait, b}}, 2},
  };
  Scenario ending{"Ends", {{a, b}, {a, b}}, 2};
  ending.is_taken_down = true;
  scenarios.push_back(std::move(ending));
  return scenarios;
}

std::vector<Scenario> three_ranks_that_meet() {
  const Join join;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  return {
      {"Once", {{a}, {a}, {a}}, 3, true},
      {"OneChanges", {{a}, {longer}, {a}}, 2, true},
      {"OneNeverCalls", {{a}, {a}, {}}, 2, true},
      {"OneJoins", {{a}, {a}, {join}}, 3, true},
  };
}

class InterleavingsOfRoundsInMemory : public ::testing::TestWithParam<Scenario> {};

TEST_P(InterleavingsOfRoundsInMemory, KeepTheAgreement) {
  Scenario scenario = GetParam();
  for (Script& script : scenario.scripts) script = after_opening(script);
  WorldOptions options;
  options.coordinator.direct = Direct::kInMemory;
  options.takes_eagerly = true;
  options.is_taken_down = scenario.is_taken_down;
  Search search(scenario.scripts, options, 4);
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.least_executed(), scenario.n_executed);
  if (scenario.name == "Twice" || scenario.name == "Once") {
    EXPECT_GT(search.n_orders_with_rounds(), 0U);
  }
  RecordProperty("orders", static_cast<int>(search.n_orders()));
}

INSTANTIATE_TEST_SUITE_P(TwoRanks, InterleavingsOfRoundsInMemory, ::testing::ValuesIn(two_ranks_that_meet()),
                         scenario_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanks, InterleavingsOfRoundsInMemory, ::testing::ValuesIn(three_ranks_that_meet()),
                         scenario_name);

// --- when ranks send each other what they contribute to a and b

std::vector<Scenario> two_ranks_by_messages() {
  const Wait wait;
  const Join join;
  const Leave leave;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  ScriptedCall deferrable = a;
  deferrable.is_deferrable = true;
  ScriptedCall all = a;
  all.signature.needs_all = true;
  return {
      {"Twice", {{a, wait, a}, {a, wait, a}}, 4},
      {"Thrice", {{a, wait, a, wait, a}, {a, wait, a, wait, a}}, 5, true},
      {"OppositeOrders", {{a, b}, {b, a}}, 4},
      {"OneHurriesOn", {{a, wait, b}, {a, b}}, 4},
      {"OneIsDeferrable", {{a, wait, a}, {deferrable, wait, a}}, 4},
      {"TheCoordinatorIsDeferrable", {{deferrable, wait, a}, {a, wait, a}}, 4},
      {"OneChanges", {{a, wait, a}, {longer, wait, a}}, 3},
      {"BothChange", {{longer, wait, longer}, {longer, wait, longer}}, 4},
      {"OneCallsTwice", {{a, a, wait}, {a, wait}}, 2},
      {"TheOtherCallsTwice", {{a, wait}, {a, a, wait}}, 2},
      {"OneCallsTwiceAndOn", {{a, a, wait, a}, {a, wait, a, wait, a}}, 2, true},
      {"BothCallTwice", {{a, a}, {a, a}}, 2},
      {"CallsTwiceDifferently", {{a, longer}, {a, longer}}, 2},
      {"OneNeverCalls", {{a, b, wait}, {b}}, 3},
      {"OneNeverCallsWhatTheOtherRepeats", {{a, a, b}, {b}}, 3},
      {"OneJoins", {{a, wait, a, join}, {a, join}}, 4},
      {"OneJoinsAtOnce", {{a, join, a}, {join, a}}, 4},
      {"OneJoinsWhileItCalls", {{a, wait, b, join, b}, {a, b, join, b}}, 4, true},
      {"NeedAllAndOneJoins", {{all, wait, all, join, all, wait, all}, {all, wait, join, all, wait, all}}, 4, true},
      {"OneLeaves", {{a, b, wait}, {a, leave}}, 2},
      {"OneLeavesAfterAll", {{a, wait, b}, {a, wait, b, wait, leave}}, 2},
      {"TheCoordinatorLeaves", {{a, b, leave}, {a, wait, b}}, 2},
  };
}

std::vector<Scenario> three_ranks_by_messages() {
  const Wait wait;
  const Join join;
  const Leave leave;
  const ScriptedCall a = call("a");
  const ScriptedCall b = call("b");
  const ScriptedCall longer = call("a", allreduce({5}));
  return {
      {"Once", {{a}, {a}, {a}}, 3, true},
      {"TwoHurryOn", {{a, wait, a}, {a, wait, a}, {a}}, 3, true},
      {"OneChanges", {{a}, {longer}, {a}}, 2, true},
      {"OneHurriesOnAndChanges", {{a}, {a, wait, longer}, {a}}, 3, true},
      {"OneHurriesOnAndJoins", {{a}, {a, wait, join}, {a}}, 3, true},
      {"OneCallsTwice", {{a}, {a, a}, {a}}, 2, true},
      {"OneNeverCalls", {{a}, {a}, {}}, 2, true},
      {"OneJoins", {{a}, {a}, {join}}, 3, true},
      {"OneLeaves", {{a}, {a}, {a, leave}}, 2, true},
      {"OneLeavesWhenItIsOver", {{a}, {a, wait}, {a, wait, leave}}, 2, true},
      {"TheCoordinatorLeaves", {{a, leave}, {a}, {a}}, 2, true},
  };
}

// While the coordinator loses patience, at any moment.
std::vector<Scenario> rounds_that_are_cancelled() {
  const Wait wait;
  const Join join;
  const ScriptedCall a = call("a");
  ScriptedCall unawaited = a;
  unawaited.is_awaited = false;
  const ScriptedCall longer = call("a", allreduce({5}));
  std::vector<Scenario> scenarios{
      {"OfTwo", {{a, wait, a}, {a, wait, a}}, 2, true},
      {"OneNeverCalls", {{a, wait, a}, {}}, 2, true},
      {"OneCallsTwice", {{a, a}, {a, wait, a}}, 2, true},
      {"OneChanges", {{a}, {longer, wait, a}}, 2, true},
      {"OneDoesNotWait", {{a, wait, a}, {unawaited, wait, a}}, 2, true},
      {"OfThree", {{a}, {a}, {a}}, 2, true},
      {"OneDoesNotWaitAndOneNeverCalls", {{a}, {unawaited}, {}}, 2, true},
      {"OneNeverCallsAndOneJoins", {{a}, {join}, {}}, 2, true},
  };
  for (Scenario& scenario : scenarios) scenario.n_stalls = 1;
  for (std::size_t i = 0; i < 4; ++i) scenarios[i].n_stalls = 2;
  return scenarios;
}

class InterleavingsOfRoundsByMessages : public ::testing::TestWithParam<Scenario> {
 protected:
  static void expect_agreement(const Scenario& scenario, std::size_t n_stalls) {
    std::vector<Script> scripts;
    for (const Script& script : scenario.scripts) scripts.push_back(after_opening(script));
    WorldOptions options;
    options.coordinator.direct = Direct::kByMessages;
    options.coordinator.stall.shutdown = std::chrono::seconds(1);
    options.takes_eagerly = scenario.writes_log_at_once;
    options.n_stalls = n_stalls;
    Search search(scripts, options, 4);
    EXPECT_EQ(n_stalls > 0 ? search.run_to_an_end() : search.run(), "");
    EXPECT_GE(search.least_executed(), scenario.n_executed);
    if (scenario.name == "Twice" || scenario.name == "Once") {
      EXPECT_EQ(search.n_orders_with_rounds(), search.n_orders());
    }
    RecordProperty("orders", static_cast<int>(search.n_orders()));
  }
};

TEST_P(InterleavingsOfRoundsByMessages, KeepTheAgreement) { expect_agreement(GetParam(), 0); }
INSTANTIATE_TEST_SUITE_P(TwoRanks, InterleavingsOfRoundsByMessages, ::testing::ValuesIn(two_ranks_by_messages()),
                         scenario_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanks, InterleavingsOfRoundsByMessages, ::testing::ValuesIn(three_ranks_by_messages()),
                         scenario_name);

class InterleavingsOfCancellations : public InterleavingsOfRoundsByMessages {};

TEST_P(InterleavingsOfCancellations, KeepTheAgreement) { expect_agreement(GetParam(), GetParam().n_stalls); }
INSTANTIATE_TEST_SUITE_P(RoundsByMessages, InterleavingsOfCancellations,
                         ::testing::ValuesIn(rounds_that_are_cancelled()), scenario_name);

// The search itself: two ranks with one call each, heard and written at once, can only be heard in two orders.
TEST(Search, VisitsEveryOrderThatDiffers) {
  WorldOptions options;
  options.takes_eagerly = true;
  Search search({{call("a")}, {call("a")}}, options);
  EXPECT_EQ(search.run(), "");
  EXPECT_EQ(search.n_orders(), 2U);
}

// --- when ranks meet for g, an allgather, and x, an alltoall in equal parts

std::vector<Scenario> two_ranks_that_meet_for_rows() {
  const Wait wait;
  const Join join;
  const auto gather = [](std::int64_t n) { return call("g", allgather({n, 2})); };
  const auto exchange = [](std::int64_t n) { return call("x", even_alltoall(n)); };
  ScriptedCall deferrable = gather(1);
  deferrable.is_deferrable = true;
  std::vector<Scenario> scenarios{
      {"Twice", {{gather(1), wait, gather(1)}, {gather(3), wait, gather(3)}}, 4},
      {"OppositeOrders", {{gather(1), exchange(2)}, {exchange(2), gather(3)}}, 4},
      {"OneGathersOtherRows", {{gather(1), wait, gather(1)}, {gather(2), wait, gather(2)}}, 4},
      {"OneGathersOtherRowsForOnce", {{gather(1), wait, gather(1)}, {gather(2), wait, gather(3)}}, 4},
      {"OneExchangesOtherRows", {{exchange(2), wait, exchange(4)}, {exchange(4), wait, exchange(4)}}, 3},
      {"BothExchangeOtherRows", {{exchange(4), wait, exchange(4)}, {exchange(4), wait, exchange(4)}}, 4},
      {"OneNeverWaits", {{gather(1), wait, gather(1)}, {deferrable, wait, gather(3)}}, 4},
      {"OneCallsTwice", {{gather(1), gather(1), wait}, {gather(3), wait}}, 2},
      {"OneJoins", {{gather(1), wait, gather(1), join}, {gather(3), join}}, 4},
  };
  for (Scenario& scenario : scenarios) {
    scenario.scripts[0].insert(scenario.scripts[0].begin(), {gather(1), wait, exchange(2), wait});
    scenario.scripts[1].insert(scenario.scripts[1].begin(), {gather(3), wait, exchange(2), wait});
  }
  return scenarios;
}

class InterleavingsOfRoundsForRows : public ::testing::TestWithParam<Scenario> {};

TEST_P(InterleavingsOfRoundsForRows, KeepTheAgreement) {
  const Scenario& scenario = GetParam();
  WorldOptions options;
  options.coordinator.direct = Direct::kInMemory;
  options.takes_eagerly = true;
  Search search(scenario.scripts, options, 4);
  EXPECT_EQ(search.run(), "");
  EXPECT_GE(search.least_executed(), scenario.n_executed);
  if (scenario.name == "Twice") {
    EXPECT_GT(search.n_orders_with_rounds(), 0U);
  }
  RecordProperty("orders", static_cast<int>(search.n_orders()));
}

INSTANTIATE_TEST_SUITE_P(TwoRanks, InterleavingsOfRoundsForRows, ::testing::ValuesIn(two_ranks_that_meet_for_rows()),
                         scenario_name);

}  // namespace
}  // namespace ciranda::testing
