// Engine::run(), and its fast path: that it carries out what all ranks have agreed on before, and leaves everything
// else to submit(): what was never agreed on, is pending, has changed, or cannot be any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "call_of_one.hpp"
#include "engine/coming.hpp"
#include "engine/engine.hpp"
#include "engine/one_is_late.hpp"
#include "engine/sets.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::agree;
using testing::arrive;
using testing::bare;
using testing::end_stalls_soon;
using testing::LastToCome;
using testing::meet;
using testing::OneIsLate;
using testing::patient;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// A call and the memory that it is about.
struct Vector {
  Vector(std::string called, std::size_t count, float value)
      : name(std::move(called)), values(count, value), shape(static_cast<std::int64_t>(count)), call({}, name) {
    call.tensor.shape = {&shape, 1};
    call.tensor.memory = {reinterpret_cast<const std::byte*>(values.data()),
                          reinterpret_cast<std::byte*>(values.data())};
  }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  std::string name;
  std::vector<float> values;
  std::int64_t shape;
  testing::CallOfOne call;
};

// As a blocking call does, and whether it was done without an operation.
Status perform(Engine& engine, const Call& call, bool* is_at_once = nullptr) {
  std::optional<Engine::OperationPtr> operation = repeat(engine, call);
  if (is_at_once != nullptr) *is_at_once = operation && *operation == nullptr;
  if (operation && *operation == nullptr) return Status::ok_status();
  return engine.wait(operation ? *operation : submit_request(engine, make_request(call)));
}

// The last rank finds the others there.
TEST(RepeatedCalls, NeedNoOperationWhereAllHaveCome) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    const Watchdog watchdog("repeated calls");
    World world(n_ranks, patient());
    LastToCome last(n_ranks);
    world.run([&](Engine& engine) {
      Vector x("x", 100, static_cast<float>(engine.rank() + 1));
      x.call.op = ReduceOp::kAverage;
      x.call.postscale = 2;
      agree(engine, x.call);
      for (int step = 1; step <= LastToCome::kMostRounds && !last.was_at_once(); ++step) {
        x.values.assign(100, static_cast<float>(engine.rank() + step));
        last.perform(engine, x.call);
        EXPECT_EQ(x.values, std::vector<float>(100, static_cast<float>(n_ranks - 1 + 2 * step)));
      }
      EXPECT_TRUE(last.was_at_once());
      EXPECT_GE(engine.n_direct(), 1U);
    });
  }
}

// As a call is recorded: rank 0, which came last, found the others there.
void expect_recorded(Recording& recording, int rank, std::uint32_t process_set, std::uint32_t lane) {
  Record record;
  bool is_any_direct = false;
  while (recording.read(record)) {
    is_any_direct |= record.path == Path::kDirect;
    EXPECT_EQ(record.process_set, process_set);
    EXPECT_EQ(record.lane, lane);
  }
  EXPECT_TRUE(is_any_direct || rank != 0);
}

// Ranks 0 and 2 are the members 0 and 1 of the set.
void expect_no_operation_in(bool is_in_set, std::uint32_t lane, const std::string& name) {
  const Watchdog watchdog("repeated calls in lanes");
  const int n_members = is_in_set ? 2 : 3;
  World world(3, patient());
  std::array<LastToCome, 2> last{LastToCome(n_members), LastToCome(n_members)};
  world.run([&](Engine& engine) {
    const std::uint32_t process_set = is_in_set ? add_set(engine, {0, 2}) : kWorldSet;
    if (is_in_set && engine.rank() == 1) return;
    const auto recording = engine.record();
    for (const bool is_sum : {true, false}) {
      LastToCome& to_come = last[is_sum ? 0 : 1];
      Vector x(name.empty() ? name : name + (is_sum ? " sum" : " broadcast"), 10, 1);
      x.call.collective = is_sum ? Collective::kAllreduce : Collective::kBroadcast;
      x.call.root = is_sum ? -1 : 2;
      x.call.process_set = process_set;
      x.call.lane = lane;
      agree(engine, x.call);
      for (int step = 1; step <= LastToCome::kMostRounds && !to_come.was_at_once(); ++step) {
        x.values.assign(10, static_cast<float>(engine.rank() + step));
        to_come.perform(engine, x.call);
        const int sum = n_members * step + (is_in_set ? 2 : 3);
        EXPECT_EQ(x.values, std::vector<float>(10, static_cast<float>(is_sum ? sum : 2 + step)));
      }
      EXPECT_TRUE(to_come.was_at_once());
    }
    EXPECT_GE(engine.n_direct(), 2U);
    expect_recorded(*recording, engine.rank(), process_set, lane);
  });
}

TEST(RepeatedCalls, NeedNoOperationInAnyLane) {
  for (const char* const name : {"x", ""}) {
    expect_no_operation_in(false, 1, name);
    expect_no_operation_in(true, 0, name);
    expect_no_operation_in(true, 1, name);
  }
}

// In numbers that were not looked at, some have the id of another lane.
TEST(RepeatedCalls, AreNoneInALaneThatCannotBe) {
  const Watchdog watchdog("lanes that cannot be");
  World world(3, patient());
  world.run([](Engine& engine) {
    const std::uint32_t process_set = add_set(engine, {0, 2});
    Vector of_world("x", 4, 1);
    agree(engine, of_world.call);
    if (engine.rank() == 1) return;
    Vector of_set("x", 4, 1);
    of_set.call.process_set = process_set;
    agree(engine, of_set.call);
    constexpr std::uint32_t kTooFar = (1ULL << 32U) / kMaxLanes;
    const std::array<std::pair<std::uint32_t, std::uint32_t>, 4> places{
        {{kWorldSet, process_set * kMaxLanes}, {kTooFar, 0}, {kTooFar + process_set, 0}, {process_set + 1, 0}}};
    for (const auto& [set, lane] : places) {
      of_set.call.process_set = set;
      of_set.call.lane = lane;
      ASSERT_EQ(repeat(engine, of_set.call), std::nullopt) << set << ", lane " << lane;
      for (const Status& status : {perform(engine, of_set.call), engine.wait(engine.submit(of_set.call))}) {
        EXPECT_TRUE(contains(status.message(), "does not exist")) << status.message();
      }
    }
  });
}

// `is_at_round`: rank 0 calls before, and the other does not come any more.
void expect_end_with_set(Engine& engine, const std::string& name, bool is_at_round) {
  const std::uint32_t process_set = add_set(engine, {0, 2});
  Vector x(name, 4, 1);
  x.call.process_set = process_set;
  if (engine.rank() != 1) agree(engine, x.call);
  const Engine::OperationPtr pending = is_at_round && engine.rank() == 0 ? arrive(engine, x.call) : nullptr;
  EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kRemoveProcessSet, {process_set}))).ok());
  if (pending != nullptr) {
    const Status status = engine.wait(pending);
    EXPECT_EQ(status.kind(), ErrorKind::kAborted);
    EXPECT_TRUE(contains(status.message(), "was removed before this was done")) << status.message();
  }
  ASSERT_EQ(repeat(engine, x.call), std::nullopt);
  const Status status = perform(engine, x.call);
  EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), "does not exist (any more)")) << status.message();
}

TEST(RepeatedCalls, EndWithTheirProcessSet) {
  const Watchdog watchdog("a removed set");
  World world(3, patient());
  for (const char* const name : {"x", ""}) {
    for (const bool is_at_round : {true, false}) {
      world.run([&](Engine& engine) { expect_end_with_set(engine, name, is_at_round); });
    }
  }
}

TEST(RepeatedCalls, OfABroadcast) {
  const Watchdog watchdog("repeated broadcasts");
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 50; ++step) {
      Vector x("x", 33, static_cast<float>(100 * step + engine.rank()));
      x.call.collective = Collective::kBroadcast;
      x.call.root = 1;
      ASSERT_TRUE(perform(engine, x.call).ok());
      ASSERT_EQ(x.values, std::vector<float>(33, static_cast<float>(100 * step + 1)));
    }
    EXPECT_GT(engine.n_direct(), 0U);  // all but the first, unless the background thread has an engine for a moment
  });
}

// As much as needs the ring, by ranks of which some are late, so that some of what was written there is never read.
TEST(RepeatedCalls, OfManyBytes) {
  const Watchdog watchdog("large repeated calls");
  WorldOptions options;
  options.config.spin_microseconds = 20;
  World world(2, options);
  world.run([](Engine& engine) {
    std::mt19937 random(static_cast<unsigned>(engine.rank()) + 3);
    for (int step = 0; step < 300; ++step) {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      for (const std::size_t count : {4000U, 30'000U}) {
        Vector x("x" + std::to_string(count), count, static_cast<float>((engine.rank() + 1) * step));
        ASSERT_TRUE(perform(engine, x.call).ok());
        ASSERT_EQ(x.values, std::vector<float>(count, static_cast<float>(3 * step)));
        Vector y("y" + std::to_string(count), count, static_cast<float>(10 * step + engine.rank()));
        y.call.collective = Collective::kBroadcast;
        y.call.root = 1;
        ASSERT_TRUE(perform(engine, y.call).ok());
        ASSERT_EQ(y.values, std::vector<float>(count, static_cast<float>(10 * step + 1)));
      }
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// It costs less to combine it there than to bring it to a round.
TEST(RepeatedCalls, LeaveWhatLiesInSharedMemoryThere) {
  const Watchdog watchdog("shared memory");
  World world(2, patient());
  world.run([](Engine& engine) {
    constexpr std::size_t kCount = 32'768;
    Result<SharedAllocation> allocated = engine.allocate_shared(kCount * sizeof(float));
    ASSERT_TRUE(allocated.ok() && allocated.value().is_shared);
    auto* shared = reinterpret_cast<float*>(allocated.value().buffer.data.get());
    Vector x("x", kCount, 0);
    x.call.tensor.memory = {reinterpret_cast<const std::byte*>(shared), reinterpret_cast<std::byte*>(shared)};
    const std::uint64_t n_direct = engine.n_direct();  // to allocate
    for (std::uint64_t step = 1; step < 6; ++step) {
      std::fill_n(shared, kCount, static_cast<float>(step));
      ASSERT_TRUE(perform(engine, x.call).ok());
      ASSERT_EQ(shared[kCount - 1], static_cast<float>(2 * step));
      EXPECT_EQ(engine.n_bytes_in_place(), step * kCount * sizeof(float));
    }
    EXPECT_EQ(engine.n_direct(), n_direct);
  });
}

TEST(RepeatedCalls, LeaveOutputAndInputApart) {
  const Watchdog watchdog("outputs");
  World world(2, patient());
  world.run([](Engine& engine) {
    Vector x("x", 5, 1);
    std::vector<float> result(5);
    x.call.tensor.memory.output = reinterpret_cast<std::byte*>(result.data());
    for (int step = 1; step < 20; ++step) {
      x.values.assign(5, static_cast<float>(step));
      ASSERT_TRUE(perform(engine, x.call).ok());
      ASSERT_EQ(x.values, std::vector<float>(5, static_cast<float>(step)));
      ASSERT_EQ(result, std::vector<float>(5, static_cast<float>(2 * step)));
    }
  });
}

TEST(RepeatedCalls, AreOnlyThoseOfTheSignatureThatWasAgreedOn) {
  const Watchdog watchdog("other signatures");
  World world(2, patient());
  world.run([](Engine& engine) {
    Vector x("x", 4, 1);
    agree(engine, x.call);
    Vector longer("x", 5, 1);
    EXPECT_EQ(repeat(engine, longer.call), std::nullopt);
    Vector of_another_name("y", 4, 1);
    EXPECT_EQ(repeat(engine, of_another_name.call), std::nullopt);
    // It had no effect: calls of all ranks are met for as if it had not been.
    EXPECT_EQ(meet(engine, 1, [&](int) { EXPECT_TRUE(perform(engine, x.call).ok()); }), 1U);

    // What one rank calls differently is an error on all, and the name's calls stay paired.
    Vector mine("x", engine.rank() == 1 ? 5 : 4, 1);
    const Status status = perform(engine, mine.call);
    EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(status.message(), "[5] on rank 1")) << status.message();
    for (int step = 0; step < 5; ++step) {
      x.values.assign(4, static_cast<float>(step));
      ASSERT_TRUE(perform(engine, x.call).ok());
      ASSERT_EQ(x.values.front(), static_cast<float>(2 * step));
    }

    // From here on all agree on another one.
    ASSERT_TRUE(perform(engine, longer.call).ok());
    EXPECT_EQ(repeat(engine, x.call), std::nullopt);
    longer.values.assign(5, 3);
    ASSERT_TRUE(perform(engine, longer.call).ok());
    EXPECT_EQ(longer.values.back(), 6.0F);
  });
}

TEST(RepeatedCalls, AreNotMadeOfANameThatIsInUse) {
  const Watchdog watchdog("a name in use");
  World world(2, patient());
  std::latch was_refused(1);
  world.run([&](Engine& engine) {
    Vector x("x", 4, 1);
    agree(engine, x.call);
    x.values.assign(4, 1);
    if (engine.rank() == 1) {
      was_refused.wait();
      EXPECT_TRUE(engine.wait(submit_request(engine, make_request(x.call))).ok());
    } else {
      Request request = make_request(x.call);
      request.is_awaited = false;
      const Engine::OperationPtr first = submit_request(engine, std::move(request));
      Vector second("x", 4, 1);
      EXPECT_EQ(repeat(engine, second.call), std::nullopt);
      was_refused.count_down();
      EXPECT_TRUE(engine.wait(first).ok());
    }
    EXPECT_EQ(x.values, std::vector<float>(4, 2));
  });
}

// One that waits for others holds its name as any other call does.
// The second use of a pending name fails the first, on both ranks; but for a call that comes before the coordinator has
// heard of the second, which is done as if there were none. So there are rounds until one fails.
TEST(RepeatedCalls, HoldTheirNameUntilTheyAreDone) {
  const Watchdog watchdog("a held name");
  World world(2, patient());
  constexpr int kMostRounds = 100;
  std::array<std::atomic<bool>, 2> has_failed{};
  std::barrier both(2);
  world.run([&](Engine& engine) {
    Vector x("x", 4, 1);
    agree(engine, x.call);
    for (int round = 0; round < kMostRounds && !has_failed[0]; ++round) {
      both.arrive_and_wait();
      Engine::OperationPtr first;
      if (engine.rank() == 0) {
        first = arrive(engine, x.call);
        EXPECT_NE(first, nullptr);
        Vector second("x", 4, 1);
        EXPECT_TRUE(submit_request(engine, make_request(second.call))->is_refused());
      }
      both.arrive_and_wait();
      const Status status = first != nullptr ? engine.wait(first) : perform(engine, x.call);
      EXPECT_TRUE(status.ok() || contains(status.message(), "Duplicate name 'x'")) << status.message();
      has_failed[static_cast<std::size_t>(engine.rank())] = !status.ok();
      while (!perform(engine, x.call).ok()) {
      }
      both.arrive_and_wait();
      EXPECT_EQ(has_failed[0], has_failed[1]);
      both.arrive_and_wait();
    }
  });
  EXPECT_TRUE(has_failed[0]);
}

TEST(RepeatedCalls, CloseTheRoundWhenOthersAreLate) {
  const Watchdog watchdog("a late rank");
  World world(3);
  OneIsLate late(3);
  world.run([&late](Engine& engine) {
    for (int step = 0; step < 12; ++step) {
      Vector x("x", 9, static_cast<float>((engine.rank() + 1) * step));
      if (engine.rank() == step % 3) {
        late.wait_for_others(step);
        ASSERT_TRUE(perform(engine, x.call).ok());
      } else {
        const std::optional<Engine::OperationPtr> repeated = repeat(engine, x.call);
        ASSERT_TRUE(!repeated || *repeated != nullptr) << "one has not come";
        ASSERT_TRUE(late.wait(engine, repeated ? *repeated : submit_request(engine, make_request(x.call))).ok());
      }
      ASSERT_EQ(x.values, std::vector<float>(9, static_cast<float>(6 * step)));
    }
    EXPECT_LT(engine.n_direct(), 11U) << "who sleeps has left the round";
  });
}

// Each rank decides for itself how it calls. The orders in which they come are the scheduler's.
TEST(RepeatedCalls, MixWithAllOtherCalls) {
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("mixed calls");
    World world(n_ranks);
    world.run([&](Engine& engine) {
      std::mt19937 random(static_cast<unsigned>(engine.rank()) + 17);
      std::uint64_t n_at_once = 0;
      for (int step = 0; step < 600; ++step) {
        const std::string name = step % 3 == 0 ? "y" : "x";
        Vector x(name, 9, static_cast<float>((engine.rank() + 1) * step));
        Status status;
        bool is_at_once = false;
        switch (random() % 8) {
          case 0: {
            Request request = make_request(x.call);
            request.is_awaited = false;
            request.is_deferrable = random() % 2 == 0;
            status = engine.wait(submit_request(engine, std::move(request)));
            break;
          }
          case 1: status = engine.wait(submit_request(engine, make_request(x.call))); break;
          default: status = perform(engine, x.call, &is_at_once);
        }
        n_at_once += is_at_once ? 1 : 0;
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(x.values, std::vector<float>(9, static_cast<float>(n_ranks * (n_ranks + 1) / 2 * step)));
      }
      EXPECT_LE(n_at_once, engine.n_direct());
    });
  }
}

TEST(RepeatedCalls, OfSeveralThreads) {
  const Watchdog watchdog("threads");
  World world(2);
  world.run([](Engine& engine) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&engine, i] {
        const std::string name = "t" + std::to_string(i);
        for (int step = 0; step < 200; ++step) {
          Vector x(name, 4, static_cast<float>(step + i));
          ASSERT_TRUE(perform(engine, x.call).ok());
          ASSERT_EQ(x.values.front(), static_cast<float>(2 * (step + i)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// A joined rank comes to no round, though the name is open to them.
TEST(RepeatedCalls, GoOnWithoutARankThatHasJoined) {
  const Watchdog watchdog("a rank that has joined");
  World world(3);
  world.run([](Engine& engine) {
    const int n_calls = engine.rank() == 2 ? 3 : 6;
    for (int step = 0; step < n_calls; ++step) {
      Vector x("x", 4, 1);
      ASSERT_TRUE(perform(engine, x.call).ok());
      EXPECT_EQ(x.values.front(), step < 3 ? 3.0F : 2.0F);
    }
    EXPECT_TRUE(engine.wait(submit_request(engine, bare(Collective::kJoin))).ok());
  });
}

// It is told so, in whatever lane it calls.
TEST(RepeatedCalls, AreNoneOfARankThatHasJoined) {
  const Watchdog watchdog("calls after join()");
  World world(2, patient());
  std::latch was_refused(1);
  world.run([&](Engine& engine) {
    Vector named("x", 4, 1);
    Vector unnamed("", 4, 1);
    const auto for_each = [&](auto act) {
      for (Call* const call : {&named.call, &unnamed.call}) {
        for (call->lane = 0; call->lane < 2; ++call->lane) act(*call);
      }
    };
    for_each([&](const Call& call) { agree(engine, call); });
    if (engine.rank() == 0) was_refused.wait();
    const Engine::OperationPtr join = submit_request(engine, bare(Collective::kJoin));
    if (engine.rank() == 1) {
      EXPECT_FALSE(engine.poll(join));
      for_each([&](const Call& call) {
        ASSERT_EQ(repeat(engine, call), std::nullopt) << call.name << ", lane " << call.lane;
        const Status status = perform(engine, call);
        EXPECT_TRUE(contains(status.message(), "was called after join()")) << status.message();
      });
      was_refused.count_down();
    }
    EXPECT_TRUE(engine.wait(join).ok());
  });
}

TEST(RepeatedCalls, AreNoneAfterShutdownNorWithoutARank) {
  const Watchdog watchdog("shutdown");
  World world(3, patient());
  world.run([](Engine& engine) {
    Vector x("x", 4, 1);
    agree(engine, x.call);
    ASSERT_TRUE(perform(engine, x.call).ok());
    if (engine.rank() == 1) {
      engine.shutdown();
      EXPECT_EQ(repeat(engine, x.call), std::nullopt);
      return;
    }
    Status status = perform(engine, x.call);
    EXPECT_EQ(status.kind(), ErrorKind::kAborted);
    EXPECT_TRUE(contains(status.message(), "rank 1")) << status.message();
    EXPECT_EQ(repeat(engine, x.call), std::nullopt);
  });
}

TEST(RepeatedCalls, AreNoneWhereRanksDoNotMeet) {
  const Watchdog watchdog("no rounds");
  WorldOptions without = patient();
  without.config.direct_rounds = false;
  WorldOptions apart = patient();
  apart.fabric.with_arena = false;
  WorldOptions compared = patient();
  compared.config.check_consistency = 1;
  for (const WorldOptions& options : {without, apart, compared}) {
    World world(2, options);
    world.run([](Engine& engine) {
      for (int step = 0; step < 3; ++step) {
        Vector x("x", 4, 1);
        agree(engine, x.call);
        ASSERT_EQ(x.values.front(), 2.0F);
      }
    });
  }
}

// What a rank did last is told of it when it is missed.
TEST(RepeatedCalls, AreRememberedWhenARankIsMissed) {
  const Watchdog watchdog("a missed rank");
  WorldOptions options = patient();
  end_stalls_soon(options.config);
  World world(2, options);
  std::latch has_failed(1);
  std::latch is_open(2);
  std::latch has_arrived(1);
  world.run([&](Engine& engine) {
    for (const char* name : {"met", "other"}) {
      Vector x(name, 4, 1);
      agree(engine, x.call);
    }
    is_open.arrive_and_wait();
    Vector met("met", 4, 1);
    // Rank 0, the coordinator, is the last to come, and so needs no operation, unless the round was closed.
    if (engine.rank() == 0) has_arrived.wait();
    const Engine::OperationPtr operation = arrive(engine, met.call);
    if (engine.rank() == 1) has_arrived.count_down();
    EXPECT_TRUE(operation == nullptr || engine.wait(operation).ok());
    if (engine.rank() == 1) has_failed.wait();
    Vector rare("rare", 4, 1);
    const Status status = perform(engine, rare.call);
    EXPECT_TRUE(contains(status.message(), "last submitted 'met'")) << status.message();
    if (engine.rank() == 0) has_failed.count_down();
  });
}

}  // namespace
}  // namespace ciranda
