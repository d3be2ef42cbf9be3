// Ranks that wait for each other: that is told when it is certain, and never else.
#include "agree/standstill.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/draws.hpp"
#include "agree/signatures.hpp"
#include "agree/simulated_world.hpp"
#include "agree/targets.hpp"
#include "repetitions.hpp"
#include "text_matchers.hpp"

namespace ciranda::testing {
namespace {

constexpr TimePoint kBegin{};

// A coordinator, and the log that it has written.
class Lane {
 public:
  explicit Lane(int n_ranks, Direct direct = Direct::kNot) : coordinator_(options(n_ranks, direct)) {}

  void request(int rank, const std::string& name) {
    must(coordinator_.on_request(rank, {name, allreduce({4}), true, false}, kBegin));
  }
  void add_set(int rank, std::vector<std::int64_t> ranks) {
    Signature signature;
    signature.collective = Collective::kAddProcessSet;
    const std::string name = "add_process_set of " + std::to_string(ranks.front());
    signature.arguments = std::move(ranks);
    must(coordinator_.on_request(rank, {name, std::move(signature), false, false}, kBegin));
  }
  void say(int rank, Message message) { must(coordinator_.on_message(rank, std::move(message), kBegin)); }
  // At the end of the log.
  void stand(int rank, std::uint32_t n_pending = 1) { say(rank, StandingMessage{n_entries_, n_pending}); }
  std::vector<LogEntry> take() {
    std::vector<LogEntry> entries = coordinator_.take_entries(true);
    n_entries_ += entries.size();
    return entries;
  }
  std::uint64_t n_entries() const { return n_entries_; }

 private:
  static CoordinatorOptions options(int n_ranks, Direct direct) {
    CoordinatorOptions options;
    options.size = n_ranks;
    options.direct = direct;
    return options;
  }
  static void must(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  Coordinator coordinator_;
  std::uint64_t n_entries_ = 0;
};

std::string text_of(const LogEntry& entry) { return std::get<FailEntry>(entry).text; }

TEST(Standstill, FailsWhatAllWaitFor) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    Lane lane(n_ranks);
    lane.request(0, "metric");
    for (int rank = 1; rank < n_ranks; ++rank) lane.request(rank, "gradient");
    for (int rank = 0; rank < n_ranks; ++rank) {
      EXPECT_TRUE(lane.take().empty());
      lane.stand(rank);
    }
    const auto entries = lane.take();
    ASSERT_EQ(entries.size(), 2U);
    for (const LogEntry& entry : entries) {
      const auto& failure = std::get<FailEntry>(entry);
      EXPECT_EQ(failure.kind, ErrorKind::kMismatch);
      EXPECT_EQ(targets_of(failure).size(), failure.name == "metric" ? 1U : static_cast<std::size_t>(n_ranks - 1));
      EXPECT_TRUE(contains(failure.text, "'" + failure.name + "' can never be done, as ranks wait for each other"));
      EXPECT_TRUE(contains(failure.text, "rank 0 waits for 'metric'; rank")) << failure.text;
    }
    // What one rank has had an error of, another gets it of at its next call.
    for (int rank = 1; rank < n_ranks; ++rank) lane.request(rank, "metric");
    const auto owed = lane.take();
    ASSERT_EQ(owed.size(), 1U);
    EXPECT_EQ(targets_of(std::get<FailEntry>(owed.front())).size(), static_cast<std::size_t>(n_ranks - 1));
    EXPECT_TRUE(contains(text_of(owed.front()), "'metric' can never be done"));
  }
}

// They are the same call, so that no rank has yet to make one of another's.
TEST(Standstill, OfProcessSetsThatDifferOwesNothing) {
  Lane lane(3);
  for (int rank = 0; rank < 3; ++rank) {
    lane.add_set(rank, {rank == 2 ? 1 : 0});
    EXPECT_TRUE(lane.take().empty());
    lane.stand(rank);
  }
  const auto entries = lane.take();
  ASSERT_EQ(entries.size(), 2U);
  for (const LogEntry& entry : entries) {
    EXPECT_EQ(std::get<FailEntry>(entry).kind, ErrorKind::kMismatch);
    EXPECT_TRUE(contains(text_of(entry), "must add and remove the same process sets, with the same ranks"));
  }
  for (const int set : {0, 1}) {
    for (int rank = 0; rank < 3; ++rank) lane.add_set(rank, {set});
    const auto executed = lane.take();
    ASSERT_EQ(executed.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<ExecuteEntry>(executed.front()));
  }
}

// Then they have made different calls.
TEST(Standstill, OfProcessSetsAndAnotherCallOwesAll) {
  Lane lane(2);
  lane.add_set(0, {0});
  lane.add_set(1, {1});
  lane.request(1, "metric");
  lane.stand(0);
  lane.stand(1, 2);
  EXPECT_EQ(lane.take().size(), 3U);
  lane.add_set(0, {1});
  lane.request(0, "metric");
  const auto owed = lane.take();
  ASSERT_EQ(owed.size(), 2U);
  for (const LogEntry& entry : owed) EXPECT_TRUE(contains(text_of(entry), "Each of these calls lacks a rank"));
}

TEST(Standstill, TellsWhatEachWaitsFor) {
  Lane lane(7);
  for (const char* name : {"a", "b", "c", "d", "e"}) lane.request(0, name);
  for (const int rank : {1, 2, 4}) lane.request(rank, "loss");
  lane.request(3, "step");
  for (const int rank : {5, 6}) lane.say(rank, JoinMessage{1});
  lane.stand(0, 5);
  for (const int rank : {1, 2, 3, 4}) lane.stand(rank);
  const auto entries = lane.take();
  ASSERT_EQ(entries.size(), 7U);
  EXPECT_TRUE(
      contains(text_of(entries.front()),
               "rank 0 waits for 'a', 'b', 'c' and 2 more; ranks 1, 2, 4 wait for 'loss'; rank 3 waits for 'step'; "
               "ranks 5, 6 joined."))
      << text_of(entries.front());
}

TEST(Standstill, IsNoneWhileOneMayGoOn) {
  Lane lane(3);
  lane.request(0, "x");
  lane.request(1, "y");
  lane.stand(0);
  lane.stand(1);
  EXPECT_TRUE(lane.take().empty());  // rank 2 works
  lane.request(2, "x");
  EXPECT_TRUE(lane.take().empty());
  lane.stand(2);
  lane.request(0, "y");  // a thread that was on its way
  EXPECT_TRUE(lane.take().empty());
  lane.stand(0, 2);
  lane.stand(1, 0);  // has given it up
  EXPECT_TRUE(lane.take().empty());
  lane.stand(1);
  EXPECT_EQ(lane.take().size(), 2U);
}

TEST(Standstill, IsNoneWhileAnAnswerIsUnderWay) {
  Lane lane(2);
  for (const char* name : {"warm", "up"}) {
    lane.request(0, name);
    lane.request(1, name);
  }
  const std::size_t n_before = lane.n_entries();
  ASSERT_FALSE(lane.take().empty());
  lane.request(0, "x");
  lane.request(1, "y");
  lane.stand(0);
  lane.say(1, StandingMessage{n_before, 1});
  EXPECT_TRUE(lane.take().empty());
  lane.stand(1);
  EXPECT_EQ(lane.take().size(), 2U);
}

TEST(Standstill, IsNoneWhereARankHasOtherCallsThanTheCoordinatorKnows) {
  Lane lane(2);
  lane.request(0, "x");
  lane.request(1, "y");
  lane.stand(0, 2);
  lane.stand(1);
  EXPECT_TRUE(lane.take().empty());
  lane.stand(0);
  EXPECT_EQ(lane.take().size(), 2U);
}

TEST(Standstill, IsNoneOfRanksThatWaitForOneThatHasJoined) {
  Lane lane(2);
  lane.request(0, "x");
  lane.stand(0);
  lane.say(1, JoinMessage{1});
  const auto entries = lane.take();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ExecuteEntry>(entries.front()));
  lane.say(0, JoinMessage{1});
  ASSERT_EQ(lane.take().size(), 1U);
  EXPECT_TRUE(lane.take().empty());
  lane.stand(1);  // nobody does so without a call
  EXPECT_TRUE(lane.take().empty());
}

// A rank that has joined says nothing, whatever it said before.
TEST(Standstill, CountsARankThatJoinsOnce) {
  Lane lane(3);
  lane.request(0, "x");
  lane.stand(0);
  lane.say(2, JoinMessage{1});
  lane.say(2, StandingMessage{lane.n_entries(), 1});
  EXPECT_TRUE(lane.take().empty());
  lane.request(1, "y");
  lane.stand(1);
  EXPECT_EQ(lane.take().size(), 2U);
}

// A member that hears of the failure of one call may be at the direct round of the other before it hears of its end.
TEST(Standstill, CancelsDirectRoundsFirst) {
  Lane lane(2, Direct::kByMessages);
  for (const int rank : {0, 1}) lane.request(rank, "x");
  const auto opened = std::get<ExecuteEntry>(lane.take().front());
  ASSERT_EQ(opened.items.front().direct, Direct::kByMessages);
  const std::uint32_t cache_id = opened.items.front().cache_id;
  lane.say(0, InputMessage{cache_id, 1, {}});
  lane.request(1, "y");
  lane.stand(0);
  lane.stand(1);
  const auto cancelled = lane.take();
  ASSERT_EQ(cancelled.size(), 1U);
  EXPECT_EQ(std::get<CancelEntry>(cancelled.front()).round, 1U);
  lane.say(1, NoInputMessage{cache_id, 1});
  EXPECT_TRUE(lane.take().empty());
  lane.stand(0);
  lane.stand(1);
  EXPECT_EQ(lane.take().size(), 2U);
}

// --- any order of events

struct Programs {
  int n_ranks = 2;
  Direct direct = Direct::kNot;
  bool reports_groups = false;
  bool join = false;
  int ranks_per_host = 0;  // more than 0: through relays
  int fan_out = 0;
};

// All begin alike, and then some make a call less or more, or wait for one at another place.
std::vector<Script> make_scripts(const Programs& programs, Random& random) {
  constexpr int kNames = 5;
  constexpr int kSteps = 10;
  std::vector<Script> scripts(static_cast<std::size_t>(programs.n_ranks));
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kNames; ++i) {
      const bool is_like_all = step < kSteps / 2;
      const bool waits = chance(random, 30);
      const bool is_deferrable = programs.direct == Direct::kNot ? chance(random, 70) : chance(random, 20);
      for (Script& script : scripts) {
        const ScriptedCall call{"t" + std::to_string(i), allreduce({i + 1}), is_deferrable};
        if (is_like_all || !chance(random, 2)) script.emplace_back(call);
        if (waits != (!is_like_all && chance(random, 2))) script.emplace_back(Wait{});
        if (!is_like_all && chance(random, 1)) {
          script.emplace_back(ScriptedCall{"alone " + std::to_string(step * kNames + i), allreduce({2})});
        }
      }
    }
    for (Script& script : scripts) script.emplace_back(Wait{});
  }
  for (Script& script : scripts) {
    if (programs.join) script.emplace_back(Join{});
  }
  return scripts;
}

void perform_all(SimulatedWorld& world, Random& random) {
  for (auto events = world.possible_events(); !events.empty(); events = world.possible_events()) {
    Event event = events[random() % events.size()];
    if (event.kind == Event::Kind::kLeaveRounds && chance(random, 80)) event = events[random() % events.size()];
    if (event.kind == Event::Kind::kTake && chance(random, 50)) event.kind = Event::Kind::kTakeBusy;
    world.perform(event);
  }
}

// How many standstills there were.
std::size_t run_programs(const Programs& programs, std::uint64_t n_seeds) {
  std::size_t n_found = 0;
  for (std::uint64_t seed = 1; seed <= repetitions(n_seeds); ++seed) {
    Random random(seed);
    const std::vector<Script> scripts = make_scripts(programs, random);
    WorldOptions options;
    options.uses_codec = true;
    options.tells_standing = true;
    options.takes_eagerly = chance(random, 30);
    options.coordinator.direct = programs.direct;
    options.coordinator.reports_groups = programs.reports_groups;
    options.fan_out = programs.fan_out;
    for (int rank = 0; rank < programs.n_ranks && programs.ranks_per_host > 0; ++rank) {
      options.hosts.push_back("host" + std::to_string(rank / programs.ranks_per_host));
    }
    SimulatedWorld world(scripts, options);
    perform_all(world, random);
    EXPECT_EQ(world.violation(), "") << programs.n_ranks << " ranks, seed " << seed;
    if (::testing::Test::HasFailure()) break;
    n_found += world.n_standstills();
  }
  return n_found;
}

TEST(StandstillSchedules, FewRanks) {
  for (const int n_ranks : {2, 3, 4, 7}) EXPECT_GT(run_programs({.n_ranks = n_ranks}, 60), repetitions(20));
}

TEST(StandstillSchedules, WithGroups) {
  for (const int n_ranks : {2, 3, 7})
    EXPECT_GT(run_programs({.n_ranks = n_ranks, .reports_groups = true}, 40), repetitions(10));
}

TEST(StandstillSchedules, RoundsInMemory) {
  for (const int n_ranks : {2, 3, 4}) {
    EXPECT_GT(run_programs({.n_ranks = n_ranks, .direct = Direct::kInMemory}, 60), repetitions(20));
  }
}

TEST(StandstillSchedules, RoundsByMessages) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    EXPECT_GT(run_programs({.n_ranks = n_ranks, .direct = Direct::kByMessages}, 60), repetitions(20));
  }
}

TEST(StandstillSchedules, WithRelays) {
  for (const auto& [n_ranks, ranks_per_host, fan_out] :
       std::vector<std::array<int, 3>>{{3, 2, 0}, {4, 2, 0}, {7, 2, 1}}) {
    const Programs programs{
        .n_ranks = n_ranks, .reports_groups = true, .ranks_per_host = ranks_per_host, .fan_out = fan_out};
    EXPECT_GT(run_programs(programs, 40), repetitions(10));
  }
}

TEST(StandstillSchedules, Joining) {
  for (const int n_ranks : {2, 3, 7}) {
    EXPECT_GT(run_programs({.n_ranks = n_ranks, .join = true}, 60), repetitions(5));
    EXPECT_GT(run_programs({.n_ranks = n_ranks, .direct = Direct::kByMessages, .join = true}, 40), repetitions(5));
  }
}

}  // namespace
}  // namespace ciranda::testing
