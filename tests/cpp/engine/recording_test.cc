// What the engine records of its calls: stages in the order in which they come, on one rank and across ranks; the way
// that each took, which is the same whether anybody looks or not; and all calls, whoever begins to look when.
#include "observe/recording.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "call_of_one.hpp"
#include "engine/engine.hpp"
#include "engine/sets.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"

namespace ciranda {
namespace {

using testing::bare;
using testing::kLayouts;
using testing::Layout;
using testing::meet;
using testing::options_for;
using testing::patient;
using testing::request;
using testing::sum;
using testing::Watchdog;
using testing::World;

using Calls = std::vector<Record>;  // of one rank

Calls read_all(Recording& recording) {
  Calls calls;
  Record record;
  while (recording.read(record)) calls.push_back(record);
  return calls;
}

// How a call is made decides its way through the engine.
struct Way {
  std::string name;
  std::size_t count;
  bool is_awaited;
  bool is_deferrable;
};
const std::vector<Way> kWays{{"small", 3, true, false},
                             {"large", 50'000, true, false},
                             {"asynchronous", 3, false, false},
                             {"deferrable", 3, false, true}};

Engine::OperationPtr submit(Engine& engine, const Way& way, std::vector<float>& values) {
  Request r = request(Collective::kAllreduce, way.name, DataType::kFloat32, {static_cast<std::int64_t>(values.size())},
                      values.data());
  r.is_awaited = way.is_awaited;
  r.is_deferrable = way.is_deferrable;
  return submit_request(engine, std::move(r));
}

std::vector<Calls> calls_of(World& world, const Way& way, int n_calls) {
  std::vector<Calls> of_ranks(static_cast<std::size_t>(world.size()));
  world.run([&](Engine& engine) {
    const auto recording = engine.record();
    std::vector<float> values(way.count);
    for (int call = 0; call < n_calls; ++call) ASSERT_TRUE(engine.wait(submit(engine, way, values)).ok());
    of_ranks[static_cast<std::size_t>(engine.rank())] = read_all(*recording);
  });
  return of_ranks;
}

void expect_in_order(const Record& call, const Way& way) {
  EXPECT_EQ(call.name, way.name);
  EXPECT_EQ(call.collective, Collective::kAllreduce);
  EXPECT_EQ(call.outcome, ErrorKind::kOk);
  EXPECT_EQ(call.n_bytes, way.count * sizeof(float));
  EXPECT_GT(call[Stage::kSubmitted], 0);
  EXPECT_EQ(call[Stage::kStarted] > 0, call.path == Path::kPlan) << to_string(call.path);
  std::int64_t last = 0;
  for (const std::int64_t at : call.at_ns) {
    if (at == 0) continue;
    EXPECT_GE(at, last);
    last = at;
  }
  for (const Stage stage : {Stage::kTaken, Stage::kReady, Stage::kAgreed, Stage::kDone}) EXPECT_GT(call[stage], 0);
}

// No rank can know that all are ready before all are. The clocks of two recordings differ by some nanoseconds.
void expect_agreed_after_all_were_ready(const std::vector<Calls>& of_ranks, std::size_t call) {
  constexpr std::int64_t kPrecision = 100;
  std::int64_t last_ready = 0;
  for (const Calls& calls : of_ranks) last_ready = std::max(last_ready, calls[call][Stage::kReady]);
  for (const Calls& calls : of_ranks) EXPECT_GE(calls[call][Stage::kAgreed], last_ready - kPrecision) << call;
}

TEST(RecordedCalls, FollowTheirStagesOnARankAndAcrossRanks) {
  const Watchdog watchdog("stages");
  for (const Layout layout : kLayouts) {
    for (const Way& way : kWays) {
      SCOPED_TRACE(to_string(layout) + ", " + way.name);
      World world(3, options_for(layout, 3));
      const std::vector<Calls> of_ranks = calls_of(world, way, 20);
      for (const Calls& calls : of_ranks) {
        ASSERT_EQ(calls.size(), 20U);
        for (const Record& call : calls) expect_in_order(call, way);
      }
      for (std::size_t call = 0; call < 20; ++call) expect_agreed_after_all_were_ready(of_ranks, call);
    }
  }
}

TEST(RecordedCalls, OfOneRank) {
  World world(1);
  const std::vector<Calls> of_ranks = calls_of(world, kWays.front(), 3);
  ASSERT_EQ(of_ranks.front().size(), 3U);
  for (const Record& call : of_ranks.front()) expect_in_order(call, kWays.front());
}

TEST(RecordedCalls, ThatFailEndWithTheirFailure) {
  World world(2);
  world.run([](Engine& engine) {
    const auto recording = engine.record();
    std::vector<float> values(static_cast<std::size_t>(2 + engine.rank()));
    EXPECT_EQ(engine.wait(submit(engine, kWays.front(), values)).kind(), ErrorKind::kMismatch);
    const Calls calls = read_all(*recording);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls.front().outcome, ErrorKind::kMismatch);
    EXPECT_EQ(calls.front().path, Path::kNone);
    EXPECT_EQ(calls.front()[Stage::kAgreed], 0);
    EXPECT_GE(calls.front()[Stage::kDone], calls.front()[Stage::kReady]);
    EXPECT_GT(calls.front()[Stage::kReady], 0);
  });
}

// Not a call that was handed in before, nor one that stands in for a rank that has joined.
TEST(RecordedCalls, AreThoseOfThisRankInTheTimeOfTheRecording) {
  const Watchdog watchdog("what is recorded");
  World world(2);
  world.run([](Engine& engine) {
    std::vector<float> values(3);
    std::vector<float> others(3);
    const auto before = submit(engine, {"before", 3, false, true}, others);
    const auto recording = engine.record();
    ASSERT_TRUE(engine.wait(before).ok());
    ASSERT_TRUE(sum(engine, "x", values).ok());
    if (engine.rank() == 0) {
      ASSERT_TRUE(sum(engine, "alone", values).ok());
    }
    ASSERT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
    std::vector<std::string> names;
    for (const Record& call : read_all(*recording)) names.push_back(call.name);
    const std::vector<std::string> of_both{"x", "join"};
    EXPECT_EQ(names, engine.rank() == 0 ? (std::vector<std::string>{"x", "alone", "join"}) : of_both);
  });
}

TEST(RecordedCalls, ThatNobodyReadsMakeRoomAndAreCounted) {
  World world(1);
  Engine& engine = world.engine(0);
  const auto recording = engine.record();
  std::vector<float> values(1);
  constexpr std::size_t kCalls = Recorder::kMostRecords + 500;
  for (std::size_t i = 0; i < kCalls; ++i) ASSERT_TRUE(sum(engine, "x", values).ok());
  const Calls calls = read_all(*recording);
  EXPECT_GT(recording->n_lost(), 500U);
  EXPECT_EQ(calls.size() + recording->n_lost(), kCalls);
}

using Paths = std::map<Path, std::uint64_t>;
Paths paths_of(const Calls& calls) {
  Paths paths;
  for (const Record& call : calls) ++paths[call.path];
  return paths;
}

struct Repeated {
  std::int64_t shape = 1;
  std::vector<float> values{1.0F};
  testing::CallOfOne call{{}, "repeated"};
  Repeated() {
    call.tensor.shape = {&shape, 1};
    call.tensor.memory = {reinterpret_cast<const std::byte*>(values.data()),
                          reinterpret_cast<std::byte*>(values.data())};
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
};

// Blocking calls, as the bindings make them. Returns how many were done at once.
std::uint64_t perform(Engine& engine, int n_calls) {
  Repeated repeated;
  std::uint64_t n_at_once = 0;
  for (int i = 0; i < n_calls; ++i) {
    std::optional<Engine::OperationPtr> operation = repeat(engine, repeated.call);
    n_at_once += operation && *operation == nullptr ? 1 : 0;
    if (operation && *operation == nullptr) continue;
    EXPECT_TRUE(engine.wait(operation ? *operation : submit_request(engine, make_request(repeated.call))).ok());
  }
  return n_at_once;
}

TEST(RecordedCalls, SayWhichWayTheyTook) {
  const Watchdog watchdog("recorded ways");
  World world(2, patient());
  world.run([](Engine& engine) {
    perform(engine, 10);
    const std::uint64_t n_met_before = engine.n_direct();
    const auto recording = engine.record();
    const CounterWord& n_counted =
        engine.counter_page().calls[static_cast<std::size_t>(Collective::kAllreduce)][size_class(sizeof(float))].direct;
    const std::uint64_t n_counted_before = n_counted.load();
    const std::uint64_t n_at_once = perform(engine, 200);
    std::vector<float> values(1);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(sum(engine, "submitted", values).ok());
    EXPECT_EQ(n_counted.load() - n_counted_before, n_at_once);
    const std::vector<Record> records = read_all(*recording);
    for (const Record& record : records) EXPECT_EQ(record.algorithm.empty(), record.path != Path::kPlan);
    Paths paths = paths_of(records);
    EXPECT_EQ(paths[Path::kDirect], n_at_once);
    EXPECT_EQ(paths[Path::kDirect] + paths[Path::kRepeated] + paths[Path::kInMemory], engine.n_direct() - n_met_before);
    EXPECT_GE(paths[Path::kPlan], 1U);  // the first of its name
    EXPECT_EQ(paths.size() - paths.count(Path::kNone), paths.size());
  });
  World apart(2, options_for(Layout::kChannels, 2));
  apart.run([](Engine& engine) {
    const auto recording = engine.record();
    std::vector<float> values(1);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(sum(engine, "swapped", values).ok());
    Paths paths = paths_of(read_all(*recording));
    EXPECT_EQ(paths[Path::kByMessages], engine.n_direct());
    EXPECT_GT(paths[Path::kByMessages], 0U);
    EXPECT_EQ(paths[Path::kByMessages] + paths[Path::kPlan], 10U);
  });
}

// Calls are met for whether somebody looks, writes a timeline, or neither.
TEST(RecordedCalls, GoNoOtherWayBecauseSomebodyLooks) {
  const Watchdog watchdog("ways with and without a recording");
  World world(2, patient());
  world.run([](Engine& engine) {
    static constexpr std::uint64_t kCalls = 80;
    std::vector<float> values(1);
    const auto met_of = [&] { return meet(engine, kCalls, [&](int) { EXPECT_TRUE(sum(engine, "x", values).ok()); }); };
    EXPECT_EQ(met_of(), kCalls);
    const auto recording = engine.record();
    EXPECT_EQ(met_of(), kCalls);
    ASSERT_TRUE(engine.start_timeline("/dev/null", true).ok());
    EXPECT_EQ(met_of(), kCalls);
    engine.stop_timeline();
    EXPECT_EQ(met_of(), kCalls);
  });
}

TEST(RecordedCalls, AreAllThereWhileOthersBeginAndCeaseToLook) {
  const Watchdog watchdog("recordings of several threads");
  constexpr int kThreads = 3;
  constexpr int kCalls = 150;
  World world(2);
  world.run([](Engine& engine) {
    const auto recording = engine.record();
    std::atomic<int> n_calling{kThreads};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&engine, &n_calling, i] {
        std::vector<float> values(1);
        for (int call = 0; call < kCalls; ++call) {
          EXPECT_TRUE(sum(engine, "t" + std::to_string(i), values, call % 3 != 0).ok());
        }
        n_calling.fetch_sub(1);
      });
    }
    for (int times = 0; n_calling.load() > 0; ++times) {
      const auto more = engine.record();
      EXPECT_TRUE(engine.start_timeline("/dev/null", times % 2 == 0).ok());
      EXPECT_TRUE(engine.start_timeline("/dev/../dev/null", false).ok()) << "it is the same";
      EXPECT_EQ(engine.start_timeline("/dev/zero", false).kind(), ErrorKind::kInvalidArgument);
      for (const Record& call : read_all(*more)) EXPECT_GE(call[Stage::kDone], call[Stage::kSubmitted]);
      engine.stop_timeline();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(read_all(*recording).size(), static_cast<std::size_t>(kThreads * kCalls));
  });
}

// Those that end with the engine are in it, and it may be read later.
TEST(RecordedCalls, OutliveTheEngine) {
  const Watchdog watchdog("a recording after the end");
  std::vector<std::unique_ptr<Recording>> recordings(2);
  std::vector<float> values(1);
  {
    World world(2);
    world.run([&](Engine& engine) {
      recordings[static_cast<std::size_t>(engine.rank())] = engine.record();
      if (engine.rank() == 0) submit(engine, {"never", 1, false, false}, values);
    });
  }
  const Calls calls = read_all(*recordings.front());
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls.front().name, "never");
  EXPECT_EQ(calls.front().outcome, ErrorKind::kAborted);
  EXPECT_TRUE(read_all(*recordings.back()).empty());
}

}  // namespace
}  // namespace ciranda
