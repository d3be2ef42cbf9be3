// Long random trainings: many ranks and names, shapes that change, errors and repeated calls thrown in, every rank in
// its own order, heard in any order. Seeded: a failure names its seed and comes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "agree/draws.hpp"
#include "agree/signatures.hpp"
#include "agree/simulated_world.hpp"
#include "repetitions.hpp"

namespace ciranda::testing {
namespace {

struct Training {
  int n_ranks = 2;
  int n_names = 12;
  int n_steps = 8;
  bool has_errors = true;
  int n_epochs = 1;  // when more than one, each ends by all joining, ranks after different numbers of steps
  std::size_t cache_capacity = 65536;
  bool learned_order = true;
  bool reports_groups = false;
  Direct direct = Direct::kNot;
  bool changes_its_mind = false;  // whether a call is waited for at once
  bool changes_calls = false;     // what names stand for
  bool calls_without_name = false;
  bool says_standing = false;  // that a rank waits
  int ranks_per_host = 0;      // more than 0: through relays
  int fan_out = 0;
};

struct Tensor {
  std::string name;
  Signature signature;
  bool is_deferrable = true;
  bool is_cacheable = true;
};

std::vector<Tensor> make_tensors(const Training& training, Random& random) {
  std::vector<Tensor> tensors;
  const int percent = training.reports_groups ? 95 : 80;
  const bool does_without_log = training.direct != Direct::kNot;
  const int deferrable_percent = training.changes_its_mind ? 50 : does_without_log ? 20 : percent;
  const int most_columns = training.direct == Direct::kByMessages ? 20 : does_without_log ? 400 : 40'000;
  for (int i = 0; i < training.n_names; ++i) {
    const Shape shape{pick(random, 1, 9), pick(random, 1, most_columns)};
    const int kind = pick(random, 0, 9);
    const Signature signature = kind < 6   ? allreduce(shape, i % 3 == 0 ? DataType::kFloat16 : DataType::kFloat32)
                                : kind < 8 ? allgather(shape)
                                : kind < 9 ? broadcast(shape, pick(random, 0, training.n_ranks - 1))
                                           : barrier();
    tensors.push_back(
        {"t" + std::to_string(i), signature, chance(random, deferrable_percent), chance(random, percent)});
  }
  return tensors;
}

// The program goes on with other calls of the same names, all alike, or what it began with.
void change_calls(const Training& training, Random& random, const std::vector<Tensor>& first,
                  std::vector<Tensor>& tensors) {
  const int kind = pick(random, 0, 3);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Shape shape{pick(random, 1, 9), pick(random, 1, 20)};
    Signature& signature = tensors[i].signature;
    signature = kind == 0   ? first[i].signature
                : kind == 1 ? broadcast(shape, pick(random, 0, training.n_ranks - 1))
                : kind == 2 ? allreduce(shape, DataType::kInt32)
                            : allgather(shape);
  }
}

// One rank's call of a tensor in one step.
ScriptedCall call_of(const Tensor& tensor, bool is_wrong, Random& random) {
  ScriptedCall call{tensor.name, tensor.signature, tensor.is_deferrable, tensor.is_cacheable};
  auto& tensors = call.signature.tensors;
  if (info(call.signature.collective).first_dim_may_differ && chance(random, 50)) {
    tensors.front().shape.front() = pick(random, 0, 5);
  }
  if (!is_wrong) return call;
  if (tensors.empty()) return {tensor.name, allreduce({1}), tensor.is_deferrable, tensor.is_cacheable};
  tensors.front().dtype = DataType::kInt64;
  return call;
}

// All ranks call the same tensors, each in its own order. In a step with a repeated call the orders are the same, since
// only ranks that make the same calls in the same order are promised that a duplicate's error pairs with a call.
void add_step(const Training& training, const std::vector<Tensor>& tensors, Random& random,
              const std::vector<bool>& has_joined, std::vector<Script>& scripts) {
  const bool is_missed = !training.reports_groups || chance(random, 10);  // some are
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_missed || !chance(random, 10)) order.push_back(i);
  }
  const bool repeats = training.has_errors && !order.empty() && chance(random, 20);
  if (repeats) order.push_back(order[random() % order.size()]);
  const int error_percent = training.reports_groups ? 1 : 8;
  std::vector<int> wrong_rank(tensors.size(), -1);
  for (int& rank : wrong_rank) {
    if (training.has_errors && training.n_ranks > 1 && chance(random, error_percent))
      rank = pick(random, 0, training.n_ranks - 1);
  }
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
    if (has_joined[rank]) continue;
    if (!repeats && chance(random, 50)) std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      ScriptedCall call = call_of(tensors[i], wrong_rank[i] == static_cast<int>(rank), random);
      if (training.changes_its_mind && chance(random, 2)) call.is_deferrable = !call.is_deferrable;
      scripts[rank].emplace_back(std::move(call));
      if (repeats && chance(random, 10)) scripts[rank].emplace_back(Wait{});  // the same order: no deadlock
    }
    scripts[rank].emplace_back(Wait{});
  }
}

// Every rank makes these in the same order, and waits for them when it likes.
void add_calls_without_name(const Training& training, Random& random, const std::vector<bool>& has_joined,
                            std::vector<std::size_t>& n_made, std::vector<Script>& scripts) {
  const std::array<Signature, 5> kinds{allreduce({1}), allreduce({7, 3}), broadcast({2}, 0), allreduce({90, 90}),
                                       allgather({3, 2})};
  for (int i = pick(random, 0, 4); i > 0; --i) {
    const Signature& kind = kinds[static_cast<std::size_t>(chance(random, 50) ? 0 : pick(random, 0, 4))];
    const bool differs = info(kind.collective).first_dim_may_differ && chance(random, 30);
    const int wrong_rank = training.has_errors && chance(random, 5) ? pick(random, 0, training.n_ranks - 1) : -1;
    for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
      if (has_joined[rank]) continue;
      const bool is_wrong = wrong_rank == static_cast<int>(rank);
      Signature signature = is_wrong ? allreduce({7, 3}) : kind;
      if (differs && !is_wrong) signature.tensors.front().shape.front() = pick(random, 3, 4);
      scripts[rank].emplace_back(
          ScriptedCall{"noname." + std::to_string(n_made[rank]++), std::move(signature), false, false});
      if (chance(random, 70)) scripts[rank].emplace_back(Wait{});
    }
  }
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
    if (!has_joined[rank]) scripts[rank].emplace_back(Wait{});
  }
}

void join_some(int percent, Random& random, std::vector<bool>& has_joined, std::vector<Script>& scripts) {
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
    if (has_joined[rank] || !chance(random, percent)) continue;
    has_joined[rank] = true;
    scripts[rank].emplace_back(Join{});
  }
}

std::vector<Script> make_scripts(const Training& training, Random& random) {
  std::vector<Tensor> tensors = make_tensors(training, random);
  const std::vector<Tensor> first = tensors;
  std::vector<Script> scripts(static_cast<std::size_t>(training.n_ranks));
  const int change_percent = training.reports_groups ? 1 : 4;
  for (int epoch = 0; epoch < training.n_epochs; ++epoch) {
    std::vector<bool> has_joined(scripts.size());
    std::vector<std::size_t> n_without_name(scripts.size());
    for (int step = 0; step < training.n_steps; ++step) {
      for (Tensor& tensor : tensors) {
        if (training.changes_its_mind && chance(random, 3)) tensor.is_deferrable = !tensor.is_deferrable;
        if (chance(random, change_percent) && !tensor.signature.tensors.empty())
          ++tensor.signature.tensors.front().shape.back();
      }
      if (training.changes_calls && chance(random, 15)) change_calls(training, random, first, tensors);
      if (training.n_epochs > 1) join_some(step == training.n_steps - 1 ? 100 : 20, random, has_joined, scripts);
      add_step(training, tensors, random, has_joined, scripts);
      if (training.calls_without_name) add_calls_without_name(training, random, has_joined, n_without_name, scripts);
    }
  }
  return scripts;
}

// What was seen of the ways round the ordinary one.
struct GroupsSeen {
  std::size_t n_direct = 0;
  std::size_t n_entries = 0;
  std::size_t n_of_all = 0;     // that the first relay reported as one
  std::size_t n_forgotten = 0;  // times that cache ids were taken back
};

WorldOptions world_options(const Training& training, Random& random) {
  WorldOptions options;
  options.uses_codec = true;
  options.takes_eagerly = chance(random, 30);
  options.tells_standing = training.says_standing;
  options.coordinator.cache_capacity = training.cache_capacity;
  options.coordinator.learned_order = training.learned_order;
  options.coordinator.fusion_threshold_bytes = std::size_t{1} << pick(random, 10, 24);
  options.coordinator.reports_groups = training.reports_groups;
  options.coordinator.direct = training.direct;
  options.coordinator.most_groups = training.reports_groups ? 4 : 1 << 20;
  options.fan_out = training.fan_out;
  for (int rank = 0; rank < training.n_ranks && training.ranks_per_host > 0; ++rank) {
    options.hosts.push_back("host" + std::to_string(rank / training.ranks_per_host));
  }
  return options;
}

std::string verdict(const SimulatedWorld& world, GroupsSeen* groups) {
  if (world.n_executed() == 0) return "nothing was executed";
  if (world.n_standstills() > 0) return "the coordinator took ranks that go on for ranks that stand";
  if (groups != nullptr) groups->n_direct += world.n_direct();
  if (groups != nullptr) groups->n_entries += world.n_group_entries();
  if (groups != nullptr) groups->n_of_all += world.n_groups_of_all();
  const auto forgets = [](const LogEntry& entry) { return std::holds_alternative<ForgetEntry>(entry); };
  const auto n_forgotten = std::count_if(world.log().begin(), world.log().end(), forgets);
  if (groups != nullptr) groups->n_forgotten += static_cast<std::size_t>(n_forgotten);
  return world.violation();
}

std::string run(const Training& training, std::uint64_t seed, GroupsSeen* groups = nullptr) {
  Random random(seed);
  const std::vector<Script> scripts = make_scripts(training, random);
  SimulatedWorld world(scripts, world_options(training, random));
  for (auto events = world.possible_events(); !events.empty(); events = world.possible_events()) {
    Event event = events[random() % events.size()];
    if (event.kind == Event::Kind::kLeaveRounds && chance(random, 80)) event = events[random() % events.size()];
    if (const int rank = pick(random, 0, training.n_ranks - 1); chance(random, 1) && world.holds_any(rank)) {
      event = {Event::Kind::kRelease, rank};
    } else if (chance(random, 1) && world.relay_holds_any(rank)) {
      event = {Event::Kind::kLetGo, rank};
    }
    if (event.kind == Event::Kind::kTake && chance(random, 50)) event.kind = Event::Kind::kTakeBusy;
    world.perform(event);
  }
  return verdict(world, groups);
}

void expect_kept(const Training& training, std::uint64_t n_seeds) {
  for (std::uint64_t seed = 1; seed <= repetitions(n_seeds); ++seed) {
    ASSERT_EQ(run(training, seed), "") << training.n_ranks << " ranks, seed " << seed;
  }
}

TEST(RandomSchedules, FewRanks) {
  for (const int n_ranks : {1, 2, 3, 4, 7}) expect_kept({.n_ranks = n_ranks}, 150);
}

TEST(RandomSchedules, WithoutErrors) {
  for (const int n_ranks : {2, 5}) expect_kept({.n_ranks = n_ranks, .n_steps = 12, .has_errors = false}, 100);
}

TEST(RandomSchedules, WithoutLearnedOrder) {
  for (const int n_ranks : {2, 4}) expect_kept({.n_ranks = n_ranks, .learned_order = false}, 100);
}

// As the others, but steps are more alike, so that groups are learned, reported and disturbed.
GroupsSeen expect_groups(Training training, std::uint64_t n_seeds) {
  training.reports_groups = true;
  GroupsSeen groups;
  for (std::uint64_t seed = 1; seed <= repetitions(n_seeds); ++seed) {
    for (const bool has_errors : {false, true}) {
      training.n_steps = 14;
      training.n_epochs = 1;
      training.has_errors = has_errors;
      EXPECT_EQ(run(training, seed, &groups), "") << training.n_ranks << " ranks, seed " << seed;
    }
    training.n_steps = 7;
    training.n_epochs = 2;
    training.has_errors = false;
    EXPECT_EQ(run(training, seed, &groups), "") << training.n_ranks << " ranks join, seed " << seed;
    if (::testing::Test::HasFailure()) break;
  }
  return groups;
}

TEST(RandomSchedules, WithGroups) {
  for (const int n_ranks : {2, 3, 7}) EXPECT_GT(expect_groups({.n_ranks = n_ranks}, 30).n_entries, repetitions(20));
}

// Names stand for other calls from time to time, while they are learned, or planned, as what they were.
TEST(RandomSchedules, WithGroupsOfCallsThatChange) {
  for (const int n_ranks : {2, 3}) {
    EXPECT_GT(expect_groups({.n_ranks = n_ranks, .n_names = 8, .changes_calls = true}, 60).n_entries, repetitions(5));
  }
}

TEST(RandomSchedules, WithRelays) {
  for (const auto& [n_ranks, ranks_per_host, fan_out] :
       std::vector<std::array<int, 3>>{{2, 1, 0}, {3, 2, 0}, {4, 2, 0}, {7, 2, 1}, {9, 3, 2}}) {
    const GroupsSeen groups =
        expect_groups({.n_ranks = n_ranks, .ranks_per_host = ranks_per_host, .fan_out = fan_out}, 20);
    EXPECT_GT(groups.n_entries, 10U);
    EXPECT_GT(groups.n_of_all, 3U);
  }
}

TEST(RandomSchedules, ManyRanksWithRelays) {
  EXPECT_GT(expect_groups({.n_ranks = 64, .ranks_per_host = 8, .fan_out = 2}, 2).n_of_all, repetitions(8) / 2);
  expect_groups({.n_ranks = 128, .n_names = 8, .ranks_per_host = 8, .fan_out = 6}, 1);
}

// What is called now so and now so, by some ranks or by all, is in groups and open to rounds in turns.
TEST(RandomSchedules, WithGroupsAndDirectRounds) {
  for (const int n_ranks : {2, 3, 7}) {
    const GroupsSeen seen =
        expect_groups({.n_ranks = n_ranks, .direct = Direct::kInMemory, .changes_its_mind = true}, 30);
    EXPECT_GT(seen.n_entries, 5U);
    if (n_ranks < 7) {  // the more there are, the sooner one leaves
      EXPECT_GT(seen.n_direct, repetitions(100));
    }
  }
}

// Ranks come to rounds in any order, and leave them when they like.
TEST(RandomSchedules, RoundsInMemory) {
  GroupsSeen seen;
  for (const int n_ranks : {2, 3, 7}) {
    for (std::uint64_t seed = 1; seed <= repetitions(60); ++seed) {
      Training training{.n_ranks = n_ranks, .direct = Direct::kInMemory};
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks, seed " << seed;
      training.has_errors = false;
      training.n_epochs = 3;
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks join, seed " << seed;
    }
  }
  EXPECT_GT(seen.n_direct, repetitions(800));
}

// Where most calls have no name, ranks meet for the next of them.
TEST(RandomSchedules, DirectRoundsWithoutNames) {
  GroupsSeen seen;
  for (const int n_ranks : {2, 3, 5}) {
    for (std::uint64_t seed = 1; seed <= repetitions(25); ++seed) {
      Training training{.n_ranks = n_ranks, .n_names = 1, .n_steps = 30, .direct = Direct::kInMemory};
      training.calls_without_name = true;
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks, seed " << seed;
      training.has_errors = false;
      training.n_epochs = 3;
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks join, seed " << seed;
      training.changes_its_mind = true;
      training.reports_groups = true;
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks with groups, seed " << seed;
    }
  }
  EXPECT_GT(seen.n_direct, repetitions(500));
}

// Messages between ranks overtake those to and from the coordinator, and the other way round.
TEST(RandomSchedules, RoundsByMessages) {
  for (const int n_ranks : {2, 3, 5}) {
    GroupsSeen seen;
    for (std::uint64_t seed = 1; seed <= repetitions(60); ++seed) {
      Training training{.n_ranks = n_ranks, .direct = Direct::kByMessages};
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks, seed " << seed;
      training.has_errors = false;
      training.n_epochs = 3;
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks join, seed " << seed;
      training = {.n_ranks = n_ranks, .reports_groups = true, .direct = Direct::kByMessages, .changes_its_mind = true};
      ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks with groups, seed " << seed;
    }
    EXPECT_GT(seen.n_direct, repetitions(1000));
  }
}

// Ranks that wait may say that they stand; but in no training do all wait for each other.
TEST(RandomSchedules, RanksThatStandAndGoOn) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    for (std::uint64_t seed = 1; seed <= repetitions(15); ++seed) {
      Training training{.n_ranks = n_ranks, .says_standing = true};
      const auto expect_kept_with = [&](const std::string& what) {
        for (const int n_epochs : {1, 2}) {
          training.n_epochs = n_epochs;
          training.has_errors = n_epochs == 1;
          ASSERT_EQ(run(training, seed), "") << n_ranks << " ranks, seed " << seed << ", " << what;
        }
      };
      expect_kept_with("the log");
      training.direct = Direct::kInMemory;
      expect_kept_with("rounds in memory");
      training.direct = Direct::kByMessages;
      expect_kept_with("rounds by messages");
      training.direct = Direct::kNot;
      training.reports_groups = true;
      training.ranks_per_host = 2;
      training.fan_out = 1;
      expect_kept_with("groups and relays");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RandomSchedules, SmallCache) {
  for (const std::size_t capacity : {0U, 1U, 5U}) expect_kept({.n_ranks = 3, .cache_capacity = capacity}, 100);
}

// Cache ids are taken back and given to other names all the time, whatever the ways round the log.
TEST(RandomSchedules, SmallCacheAndWaysRoundTheLog) {
  GroupsSeen seen;
  for (const int n_ranks : {2, 3, 5}) {
    for (std::uint64_t seed = 1; seed <= repetitions(25); ++seed) {
      Training training{.n_ranks = n_ranks, .n_steps = 12, .cache_capacity = 2 + seed % 9};
      const auto expect_kept_with = [&](const std::string& what) {
        for (const int n_epochs : {1, 2}) {
          training.n_epochs = n_epochs;
          training.has_errors = n_epochs == 1;
          ASSERT_EQ(run(training, seed, &seen), "") << n_ranks << " ranks, seed " << seed << ", " << what;
        }
      };
      training.direct = Direct::kInMemory;
      expect_kept_with("rounds in memory");
      training.reports_groups = training.changes_its_mind = true;
      expect_kept_with("rounds in memory and groups");
      training.direct = Direct::kByMessages;
      expect_kept_with("rounds by messages and groups");
      training.direct = Direct::kNot;
      training.changes_its_mind = false;
      training.ranks_per_host = 2;
      expect_kept_with("relays");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(seen.n_forgotten, repetitions(400));
  EXPECT_GT(seen.n_direct, repetitions(400));
  EXPECT_GT(seen.n_entries, repetitions(10));
}

TEST(RandomSchedules, ManyNames) { expect_kept({.n_ranks = 3, .n_names = 150, .n_steps = 5}, 20); }

TEST(RandomSchedules, ManyRanks) {
  expect_kept({.n_ranks = 16}, 15);
  expect_kept({.n_ranks = 64, .n_names = 10, .n_steps = 6}, 5);
}

TEST(RandomSchedules, Joining) {
  for (const int n_ranks : {2, 3, 7}) {
    expect_kept({.n_ranks = n_ranks, .n_steps = 5, .has_errors = false, .n_epochs = 3}, 60);
  }
}

TEST(RandomSchedules, ManyRanksJoin) {
  expect_kept({.n_ranks = 64, .n_names = 8, .n_steps = 4, .has_errors = false, .n_epochs = 2}, 3);
  expect_kept({.n_ranks = 256, .n_names = 4, .n_steps = 3, .has_errors = false, .n_epochs = 2}, 1);
}

// --- as many as the design is for: 4,096 ranks on 512 hosts

constexpr std::size_t kExecutedBeforeTheEnd = 20;  // names, where the lane is taken down

// Asking for all that is possible takes long with so many ranks, so of what was possible at one time most is done, in
// any order, before it is asked again. What each rank and relay does or leaves at a time depends on how slow it is.
void perform_some(SimulatedWorld& world, std::vector<Event> events, const std::vector<int>& speeds, Random& random) {
  std::shuffle(events.begin(), events.end(), random);
  bool moved = false;
  for (Event& event : events) {
    const bool is_last = !moved && &event == &events.back();
    if (!is_last && !chance(random, event.rank < 0 ? 30 : speeds[static_cast<std::size_t>(event.rank)])) continue;
    if (event.kind == Event::Kind::kEnd && !is_last && world.n_executed() < kExecutedBeforeTheEnd) continue;
    if (!world.is_possible(event)) continue;
    if (event.kind == Event::Kind::kTake && chance(random, 50)) event.kind = Event::Kind::kTakeBusy;
    world.perform(event);
    moved = true;
  }
}

constexpr Training kHuge{
    .n_ranks = 4096, .n_names = 4, .n_steps = 8, .reports_groups = true, .ranks_per_host = 8, .fan_out = 23};

struct Seen {
  std::size_t n_groups_of_all = 0;
  int n_mismatches = 0;
  int n_duplicates = 0;
  int n_ended = 0;
};

Seen seen_in(const SimulatedWorld& world) {
  Seen found{world.n_groups_of_all()};
  for (const LogEntry& entry : world.log()) {
    const auto* failure = std::get_if<FailEntry>(&entry);
    if (failure == nullptr) continue;
    if (failure->kind == ErrorKind::kMismatch) ++found.n_mismatches;
    if (failure->kind == ErrorKind::kInvalidArgument) ++found.n_duplicates;
    if (failure->kind == ErrorKind::kAborted) ++found.n_ended;
  }
  return found;
}

// The log stays short: that a name has failed is said to thousands of ranks in few entries.
Seen run_in_sweeps(const Training& training, std::uint64_t seed, bool is_taken_down = false) {
  Random random(seed);
  const std::vector<Script> scripts = make_scripts(training, random);
  WorldOptions options = world_options(training, random);
  options.is_taken_down = is_taken_down;
  SimulatedWorld world(scripts, options);
  std::vector<int> speeds(scripts.size());
  for (int& speed : speeds) speed = chance(random, 5) ? 10 : 90;
  for (auto events = world.possible_events(); !events.empty(); events = world.possible_events()) {
    perform_some(world, std::move(events), speeds, random);
  }
  EXPECT_EQ(verdict(world, nullptr), "");
  EXPECT_LT(world.n_log_entries(), 500U);
  return seen_in(world);
}

TEST(HugeSchedules, WithErrors) {
  const Seen found = run_in_sweeps(kHuge, 1);
  EXPECT_GT(found.n_groups_of_all, 0U);
  EXPECT_GT(found.n_mismatches, 0);
  EXPECT_GT(found.n_duplicates, 0);
}

TEST(HugeSchedules, Joining) {
  Training training = kHuge;
  training.has_errors = false;
  training.n_steps = 5;
  training.n_epochs = 2;
  run_in_sweeps(training, 1);
}

TEST(HugeSchedules, TakenDown) {
  const Seen found = run_in_sweeps(kHuge, 2, true);
  EXPECT_GT(found.n_ended, 0);
}

}  // namespace
}  // namespace ciranda::testing
