// Groups reported by one number: when they are planned, counted and carried out as one, and when they fall apart into
// their names.
#include "agree/planned_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/signatures.hpp"
#include "agree/targets.hpp"

namespace ciranda::testing {
namespace {

using std::chrono::seconds;

constexpr TimePoint kMade = TimePoint{} + seconds(1000);

CoordinatorOptions with_groups(int size) {
  CoordinatorOptions options;
  options.size = size;
  options.reports_groups = true;
  return options;
}

// A coordinator whose ranks use the names "a" and "b", cache ids 0 and 1, in every step.
class Planned {
 public:
  explicit Planned(CoordinatorOptions options, const Signature& a = allreduce({4}), const Signature& b = allreduce({4}))
      : size_(options.size), coordinator_(std::move(options)) {
    for (int rank = 0; rank < size_; ++rank) {
      must(coordinator_.on_request(rank, {"a", a, true, true}, kMade));
      must(coordinator_.on_request(rank, {"b", b, true, true}, kMade));
    }
    coordinator_.take_entries(true);
    for (int step = 0; step < 3; ++step) step_by_cache_ids();
    for (int rank = 0; rank < size_; ++rank) must(know(rank, 1));
  }

  Coordinator& operator*() { return coordinator_; }
  Coordinator* operator->() { return &coordinator_; }
  const PlanEntry& plan() const { return plan_; }

  void step_by_cache_ids() {
    for (int rank = 0; rank < size_; ++rank) must(ready(rank, {0, 1}));
    for (const LogEntry& entry : coordinator_.take_entries(true)) {
      if (const auto* plan = std::get_if<PlanEntry>(&entry)) plan_ = *plan;
    }
  }
  Status ready(int rank, const std::vector<std::uint32_t>& cache_ids) {
    ReadyMessage message;
    for (const std::uint32_t cache_id : cache_ids) message.items.push_back({cache_id, true});
    return coordinator_.on_ready(rank, message, kMade);
  }
  Status group(int rank, std::uint32_t number, std::uint32_t plan = 1, TimePoint now = kMade) {
    return coordinator_.on_message(rank, GroupsMessage{plan, {number}}, now);
  }
  Status know(int rank, std::uint32_t plan) { return coordinator_.on_message(rank, GroupsMessage{plan, {}}, kMade); }
  void group_by_all(std::uint32_t number) {
    for (int rank = 0; rank < size_; ++rank) must(group(rank, number));
  }
  // What was taken, a text for each entry: "0+1" cache ids, "group 0", "!name" and how often for whom.
  std::vector<std::string> taken(bool wire_is_idle = true) {
    std::vector<std::string> out;
    for (const LogEntry& entry : coordinator_.take_entries(wire_is_idle)) {
      std::string& text = out.emplace_back();
      if (const auto* execute = std::get_if<ExecuteEntry>(&entry)) {
        for (const ExecuteItem& item : execute->items)
          text += (text.empty() ? "" : "+") + std::to_string(item.cache_id);
      } else if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) {
        text = "group";
        for (const std::uint32_t number : groups->groups) text += " " + std::to_string(number);
      } else if (const auto* failure = std::get_if<FailEntry>(&entry)) {
        text = "!" + failure->name;
        for (const std::int32_t target : targets_of(*failure)) text += " " + std::to_string(target);
      } else {
        text = "?";
      }
    }
    return out;
  }

  static void must(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

 private:
  int size_;
  Coordinator coordinator_;
  PlanEntry plan_;
};

using Texts = std::vector<std::string>;

TEST(PlannedGroups, SayWhoHasReportedWhichNames) {
  Planned planned(with_groups(2));
  EXPECT_TRUE(planned.group(0, 0).ok());
  EXPECT_FALSE(planned->has_arrivals()) << "nobody wants them";
  planned->keep_arrivals(true);
  EXPECT_TRUE(planned.group(1, 0).ok());
  std::vector<std::string> found;
  for (const ArrivedCall& call : planned->take_arrivals()) {
    EXPECT_EQ(call.collective, Collective::kAllreduce);
    found.push_back(std::to_string(call.member) + call.name);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"1a", "1b"}));
  EXPECT_FALSE(planned->has_arrivals());
  planned.taken();
  EXPECT_TRUE(planned->on_request(0, {"c", allreduce({4}), true, true}, kMade).ok());
  EXPECT_EQ(planned->take_arrivals().size(), 1U);
}

TEST(PlannedGroups, AreMadeKnownOnceLearned) {
  Planned desk(with_groups(2));
  EXPECT_EQ(desk.plan().plan, 1U);
  EXPECT_EQ(desk.plan().groups, (std::vector<std::vector<std::uint32_t>>{{0, 1}}));
}

TEST(PlannedGroups, AreNotMadeKnownUnlessAsked) {
  CoordinatorOptions options = with_groups(1);
  options.reports_groups = false;
  Coordinator coordinator(options);
  Planned::must(coordinator.on_request(0, {"a", allreduce({4}), true, true}, kMade));
  coordinator.take_entries(true);
  for (int step = 0; step < 4; ++step) {
    Planned::must(coordinator.on_ready(0, {{{0, true}}}, kMade));
    EXPECT_EQ(coordinator.take_entries(true).size(), 1U);
  }
}

TEST(PlannedGroups, HoldNamesOfOneKind) {
  const Planned desk(with_groups(1), allreduce({4}), allreduce({4}, DataType::kFloat16));
  EXPECT_EQ(desk.plan().groups, (std::vector<std::vector<std::uint32_t>>{{0}, {1}}));
}

TEST(PlannedGroups, LeaveOutWhatTravelsAlone) {
  const Planned desk(with_groups(1), broadcast({4}, 0), allreduce({4}));
  EXPECT_EQ(desk.plan().groups, (std::vector<std::vector<std::uint32_t>>{{1}}));
}

TEST(PlannedGroups, AreCarriedOutAsOne) {
  Planned desk(with_groups(3));
  for (int step = 0; step < 3; ++step) {
    Planned::must(desk.group(2, 0));
    Planned::must(desk.group(0, 0));
    EXPECT_EQ(desk.taken(), Texts{});
    Planned::must(desk.group(1, 0));
    EXPECT_EQ(desk.taken(), Texts{"group 0"});
  }
}

TEST(PlannedGroups, NoteForWhomTheFirstRankHasWaited) {
  Planned desk(with_groups(2));
  desk->take_held_up();
  Planned::must(desk.group(1, 0));
  Planned::must(desk.group(0, 0, 1, kMade + seconds(2)));
  const std::vector<HeldUp> found = desk->take_held_up();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].last, 0);
  EXPECT_EQ(found[0].until - found[0].from, seconds(2));
}

TEST(PlannedGroups, TravelTogetherWhenTheWireWasBusy) {
  Planned desk(with_groups(1), allreduce({1 << 20}), allreduce({1 << 20}));
  desk.group_by_all(1);
  desk.group_by_all(0);
  EXPECT_EQ(desk.taken(false), Texts{"group 1 0"});
}

TEST(PlannedGroups, ObeyTheFusionThreshold) {
  CoordinatorOptions options = with_groups(1);
  options.fusion_threshold_bytes = 20;
  Planned desk(options);  // of 16 bytes each
  EXPECT_EQ(desk.plan().groups.size(), 2U);
  desk.group_by_all(0);
  desk.group_by_all(1);
  EXPECT_EQ(desk.taken(), (Texts{"group 0", "group 1"}));
}

TEST(PlannedGroups, MeetNamesReportedByCacheId) {
  Planned desk(with_groups(2));
  Planned::must(desk.group(0, 0));
  Planned::must(desk.ready(1, {0}));
  desk->on_waiting(1);
  EXPECT_EQ(desk.taken(), Texts{"0"});
  Planned::must(desk.ready(1, {1}));
  desk->on_waiting(1);
  EXPECT_EQ(desk.taken(), Texts{"1"});
  desk.group_by_all(0);
  EXPECT_EQ(desk.taken(), Texts{"group 0"});
}

TEST(PlannedGroups, MeetAChangedSignature) {
  Planned desk(with_groups(2));
  Planned::must(desk.group(0, 0));
  Planned::must(desk.ready(1, {0}));
  Planned::must(desk->on_request(1, {"b", allreduce({5}), true, true}, kMade));
  desk->on_waiting(1);
  EXPECT_EQ(desk.taken(), (Texts{"!b 0 1", "0"}));
}

// What all had reported, but is not in the log yet, can still fail.
TEST(PlannedGroups, MeetADuplicateWhileReady) {
  Planned desk(with_groups(2), allreduce({4}), allreduce({4}));
  desk.group_by_all(0);
  Planned::must(desk->on_message(1, DuplicateMessage{"a"}, kMade));
  desk->on_waiting(0);
  EXPECT_EQ(desk.taken(), (Texts{"!a 0 1 1", "1"}));
}

// Names that no longer travel together are reported as a group, and go one by one.
TEST(PlannedGroups, FallApartWhenTheirKindsDo) {
  Planned desk(with_groups(2));
  for (int rank = 0; rank < 2; ++rank) {
    Planned::must(desk.ready(rank, {0}));
    Planned::must(desk->on_request(rank, {"b", allreduce({4}, DataType::kFloat16), true, true}, kMade));
  }
  EXPECT_EQ(desk.taken(), (Texts{"0", "1"}));
  desk.group_by_all(0);
  EXPECT_EQ(desk.taken(), (Texts{"0", "1"}));
}

// A program whose calls of a name change: from such as travel together to such as do not, while their order is learned.
TEST(PlannedGroups, AreOfWhatNamesStandForNow) {
  Coordinator coordinator(with_groups(2));
  const auto step = [&coordinator](const std::optional<Signature>& in_full) {
    for (int rank = 0; rank < 2; ++rank) {
      for (const std::uint32_t cache_id : {0U, 1U}) {
        Planned::must(in_full ? coordinator.on_request(rank, {cache_id == 0 ? "a" : "b", *in_full, true, true}, kMade)
                              : coordinator.on_ready(rank, {{{cache_id, true}}}, kMade));
      }
    }
    std::size_t n_plans = 0;
    for (const LogEntry& entry : coordinator.take_entries(true)) n_plans += std::holds_alternative<PlanEntry>(entry);
    return n_plans;
  };
  EXPECT_EQ(step(allreduce({4})), 0U);
  EXPECT_EQ(step({}), 0U);
  EXPECT_EQ(step(broadcast({4}, 0)), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step({}), 0U);
}

// The plan could not be told for so long that its names stand for something else by then.
TEST(PlannedGroups, AreNoneOfWhatTravelsAloneWhenTold) {
  LearnedOrder order{LearnedOrderOptions{}};
  for (int step = 0; step < 3; ++step) {
    for (const std::uint32_t cache_id : {0U, 1U}) order.observe(cache_id, 16, 7);
  }
  NameState a("a", true, 1);
  NameState b("b", true, 1);
  const CoordinatorOptions options = with_groups(1);
  Members members(1, {}, {});
  CacheIds cache_ids(2, 1);
  ReadyQueue ready(options);
  OpenNegotiations open_negotiations(options);
  Negotiations negotiations(options, members, cache_ids, ready, open_negotiations);
  PlannedGroups groups(options, members, ready, negotiations, open_negotiations);
  const auto plan = groups.publish(order, {&a, &b});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->groups, (std::vector<std::vector<std::uint32_t>>{{0, 1}}));
  EXPECT_FALSE(a.group->is_whole(options.fusion_threshold_bytes));
  a.kind = b.kind = 7;
  EXPECT_TRUE(a.group->is_whole(options.fusion_threshold_bytes));
}

TEST(PlannedGroups, StallByName) {
  CoordinatorOptions options = with_groups(2);
  options.stall.warning = seconds(10);
  options.stall.shutdown = seconds(30);
  Planned desk(options);
  Planned::must(desk.group(1, 0));
  EXPECT_EQ(desk->next_stall_check(), kMade + seconds(10));
  EXPECT_TRUE(desk->check_stalls(kMade + seconds(9)).empty());
  auto reports = desk->check_stalls(kMade + seconds(10));
  ASSERT_EQ(reports.size(), 2U);
  for (const StallReport& report : reports) {
    EXPECT_EQ(report.missing, std::vector<int>{0});
    EXPECT_NE(report.text.find("has waited 10.0 s for rank 0, which last submitted 'b' 10.0 s ago"), std::string::npos)
        << report.text;
  }
  EXPECT_EQ(desk->next_stall_check(), kMade + seconds(20));
  desk->check_stalls(kMade + seconds(30));
  auto failed = desk.taken();
  std::sort(failed.begin(), failed.end());
  EXPECT_EQ(failed, (Texts{"!a 1", "!b 1"}));
  EXPECT_FALSE(desk->next_stall_check());
}

TEST(PlannedGroups, AreNoStallOnceReady) {
  CoordinatorOptions options = with_groups(2);
  options.stall.warning = seconds(10);
  Planned desk(options);
  desk.group_by_all(0);
  EXPECT_TRUE(desk->check_stalls(kMade + seconds(100)).empty());
  EXPECT_EQ(desk.taken(), Texts{"group 0"});
  EXPECT_FALSE(desk->next_stall_check());
}

TEST(PlannedGroups, FailWithTheRest) {
  Planned desk(with_groups(2));
  Planned::must(desk.group(1, 0));
  desk->fail_all(Status::aborted("the end"));
  auto failed = desk.taken();
  std::sort(failed.begin(), failed.end());
  EXPECT_EQ(failed, (Texts{"!a 1", "!b 1"}));
}

TEST(PlannedGroups, AreCompleteWithoutRanksThatHaveJoined) {
  Planned desk(with_groups(2));
  Planned::must(desk.group(1, 0));
  Planned::must(desk->on_join(0, {}));
  const Texts taken = desk.taken();
  EXPECT_TRUE(taken == Texts{"0+1"} || taken == Texts{"1+0"});
}

TEST(PlannedGroups, AreRefusedWhenThereAreNone) {
  Planned desk(with_groups(2));
  EXPECT_FALSE(desk.group(0, 1).ok());
  EXPECT_FALSE(desk.group(0, 0, 2).ok());
  EXPECT_FALSE(desk.know(0, 2).ok());
  EXPECT_FALSE(desk.know(0, 1).ok());  // all have said so
  Planned::must(desk.group(0, 0));
  EXPECT_FALSE(desk.group(0, 0).ok());
}

TEST(PlannedGroups, ChangeWhenAllKnowTheLast) {
  Planned desk(with_groups(2));
  const auto add_c = [&](int rank) { Planned::must(desk->on_request(rank, {"c", allreduce({4}), true, true}, kMade)); };
  const auto step = [&] {  // now with "c", cache id 2
    for (int rank = 0; rank < 2; ++rank) Planned::must(desk.ready(rank, {0, 1, 2}));
    return desk->take_entries(true);
  };
  for (int rank = 0; rank < 2; ++rank) add_c(rank);
  desk->take_entries(true);
  step();
  step();
  const auto entries = step();
  ASSERT_TRUE(std::holds_alternative<PlanEntry>(entries.back()));
  EXPECT_EQ(std::get<PlanEntry>(entries.back()).plan, 2U);
  EXPECT_EQ(std::get<PlanEntry>(entries.back()).groups.front().size(), 3U);
  Planned::must(desk.know(1, 2));
  Planned::must(desk.group(1, 0, 2));
  Planned::must(desk.group(0, 0, 1));  // it does not know yet
  Planned::must(desk.ready(0, {2}));
  EXPECT_EQ(desk.taken(), Texts{"0+1+2"});
  Planned::must(desk.know(0, 2));
  EXPECT_FALSE(desk.group(0, 0, 1).ok());
}

// --- as relays report

RelayedMessage from(std::vector<std::int32_t> ranks, ReadyReport report) {
  return {{{std::move(ranks), std::move(report)}}, false};
}

TEST(RelayedGroups, OfAllAreReadyAtOnce) {
  Planned desk(with_groups(3));
  for (int step = 0; step < 3; ++step) {
    Planned::must(desk->on_relayed(from({}, GroupsMessage{1, {0}}), kMade));
    EXPECT_EQ(desk.taken(), Texts{"group 0"});
  }
}

TEST(RelayedGroups, OfAllFallApartToo) {
  Planned desk(with_groups(2));
  Planned::must(desk->on_relayed(from({}, GroupsMessage{1, {0}}), kMade));
  Planned::must(desk->on_relayed({{{{1}, DuplicateMessage{"b"}}}, true}, kMade));
  EXPECT_EQ(desk.taken(), (Texts{"!b 0 1 1", "0"}));
  Planned::must(desk->on_relayed({{{{}, GroupsMessage{1, {0}}}}, true}, kMade));  // rank 0 owes "b"
  EXPECT_EQ(desk.taken(), (Texts{"!b 0", "0"}));
}

TEST(RelayedGroups, OfSomeAreCounted) {
  Planned desk(with_groups(3));
  Planned::must(desk->on_relayed(from({0, 2}, GroupsMessage{1, {0}}), kMade));
  EXPECT_EQ(desk.taken(), Texts{});
  Planned::must(desk->on_relayed(from({1}, GroupsMessage{1, {0}}), kMade));
  EXPECT_EQ(desk.taken(), Texts{"group 0"});
  EXPECT_FALSE(desk->on_relayed(from({3}, GroupsMessage{1, {0}}), kMade).ok());
}

TEST(RelayedGroups, OfAllAreRefusedAfterThoseOfOne) {
  Planned desk(with_groups(3));
  Planned::must(desk->on_relayed(from({1}, GroupsMessage{1, {0}}), kMade));
  EXPECT_FALSE(desk->on_relayed(from({}, GroupsMessage{1, {0}}), kMade).ok());
}

TEST(RelayedGroups, OfAllAreRefusedWhileOneHasJoined) {
  Planned desk(with_groups(3));
  Planned::must(desk->on_relayed(from({1}, JoinMessage{}), kMade));
  EXPECT_FALSE(desk->on_relayed(from({}, GroupsMessage{1, {0}}), kMade).ok());
}

TEST(RelayedGroups, SayWhoWaits) {
  Planned desk(with_groups(2));
  Planned::must(desk->on_relayed(from({0, 1}, ReadyMessage{{{0, true}}}), kMade));
  EXPECT_EQ(desk.taken(), Texts{});  // for the rest of its group
  Planned::must(desk->on_relayed({{}, true}, kMade));
  EXPECT_TRUE(desk->has_waiting_rank());
  EXPECT_EQ(desk.taken(), Texts{"0"});
}

}  // namespace
}  // namespace ciranda::testing
