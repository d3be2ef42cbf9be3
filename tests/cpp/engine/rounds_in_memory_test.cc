// Calls that ranks carry out by direct rounds in memory, without the coordinator: that they do, that the results are
// right when some meet and some do not, and that nobody waits at a round for ever.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "engine/one_is_late.hpp"
#include "engine/sets.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "repetitions.hpp"
#include "transport/arena.hpp"

namespace ciranda {
namespace {

using testing::add_set;
using testing::awaited;
using testing::expected;
using testing::filled;
using testing::meet;
using testing::OneIsLate;
using testing::patient;
using testing::request;
using testing::sum;
using testing::sum_of;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// Whoever comes last needs no iteration of the progress loop: its call is done when it returns, unless the background
// thread has the engine in that moment.
TEST(RoundsInMemory, AreOverAsSoonAsTheLastHasCome) {
  const Watchdog watchdog("rounds");
  constexpr int kSteps = 50;
  World world(2, patient());
  std::atomic<int> n_arrived{0};  // of the first rank to come
  int n_done_at_once = 0;         // of the last's
  world.run([&](Engine& engine) {
    for (int step = 0; step < kSteps; ++step) {
      std::array<float, 3> values{1, 2, 3};
      if (engine.rank() == 0) n_arrived.wait(step);
      const Engine::OperationPtr operation =
          submit_request(engine, awaited(request(Collective::kAllreduce, "x", DataType::kFloat32, {3}, values.data())));
      if (engine.rank() == 0) {
        n_done_at_once += operation->is_done() ? 1 : 0;
      } else {
        EXPECT_FALSE(operation->is_done());
        n_arrived = step + 1;
        n_arrived.notify_one();
      }
      EXPECT_TRUE(engine.wait(operation).ok());
      EXPECT_EQ(values[2], 6.0F);
    }
  });
  EXPECT_GT(n_done_at_once, 0);
}

// Two ranks meet for more than several.
TEST(RoundsInMemory, OfTwoRanksAreForMore) {
  const Watchdog watchdog("larger rounds");
  for (const std::size_t count : {4096U, 4097U, 16'384U, 16'385U, 32'768U, 32'769U, 262'143U, 262'144U}) {
    World world(2, patient());
    world.run([&](Engine& engine) {
      const auto call = [&](int step) {
        std::vector<float> values = filled(count, engine.rank(), step % 40);
        EXPECT_TRUE(sum(engine, "x", values).ok());
        EXPECT_EQ(values, std::vector<float>(count, expected(2, step % 40)));
      };
      EXPECT_EQ(meet(engine, 39, call), 39U);  // every buffer more than once
    });
  }
}

// Of several names, in other orders on either rank, and of sizes that come and go.
TEST(RoundsInMemory, OfTwoRanksShareTheirMemory) {
  const Watchdog watchdog("larger rounds of several threads");
  World world(2);
  world.run([](Engine& engine) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&engine, i] {
        const std::string name = "t" + std::to_string(i);
        for (int step = 0; step < 120; ++step) {
          const std::size_t count = 3000 * (1 + i + static_cast<std::size_t>(step) / 40 * 5);
          const bool is_awaited = step % 7 != static_cast<int>(i) || engine.rank() == 0;
          std::vector<float> values = filled(count, engine.rank(), step);
          ASSERT_TRUE(sum(engine, name, values, is_awaited).ok());
          ASSERT_EQ(values, std::vector<float>(count, expected(2, step)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Rank 0 contributes more than it has buffers for before rank 1 comes to any of it.
TEST(RoundsInMemory, OfTwoRanksGoOnWithoutRoom) {
  const Watchdog watchdog("more than there are buffers for");
  constexpr std::size_t kCalls = 20;
  constexpr std::size_t kCount = 32'768;
  World world(2, patient());
  std::latch is_open(2);
  std::latch have_come(1);
  world.run([&](Engine& engine) {
    std::vector<std::vector<float>> tensors;
    for (std::size_t i = 0; i < kCalls; ++i) {
      tensors.push_back(filled(kCount, engine.rank(), 0));
      ASSERT_TRUE(sum(engine, std::to_string(i), tensors[i]).ok());
      tensors[i] = filled(kCount, engine.rank(), static_cast<int>(i));
    }
    is_open.arrive_and_wait();
    if (engine.rank() == 1) have_come.wait();
    std::vector<Engine::OperationPtr> operations;
    for (std::size_t i = 0; i < kCalls; ++i) {
      operations.push_back(submit_request(engine, awaited(request(Collective::kAllreduce, std::to_string(i),
                                                                  DataType::kFloat32, {kCount}, tensors[i].data()))));
      if (engine.rank() == 1) {
        ASSERT_TRUE(engine.wait(operations[i]).ok());
      }
    }
    if (engine.rank() == 0) have_come.count_down();
    for (std::size_t i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(engine.wait(operations[i]).ok());
      ASSERT_EQ(tensors[i], std::vector<float>(kCount, expected(2, static_cast<int>(i))));
    }
    EXPECT_LE(engine.n_direct(), SharedArena::kSmallBuffers);
  });
}

// Rank 0 lays what it contributes in a buffer each time, and rank 1 does not come: the buffer serves again.
TEST(RoundsInMemory, OfTwoRanksThatAreClosedLeaveTheirRoom) {
  const Watchdog watchdog("closed rounds");
  constexpr std::size_t kCount = 32'768;
  World world(2, patient());
  world.run([&](Engine& engine) {
    const auto call = [&engine](int step, bool is_awaited) {
      std::vector<float> values = filled(kCount, engine.rank(), step);
      ASSERT_TRUE(sum(engine, "x", values, is_awaited).ok());
      ASSERT_EQ(values, std::vector<float>(kCount, expected(2, step)));
    };
    for (int step = 0; step < static_cast<int>(3 * SharedArena::kSmallBuffers); ++step) call(step, engine.rank() == 0);
    EXPECT_EQ(engine.n_direct(), 0U);
    EXPECT_EQ(meet(engine, 4, [&](int step) { call(step, true); }), 4U);
  });
}

TEST(RoundsInMemory, OfTwoRanksForALargeBroadcast) {
  const Watchdog watchdog("large broadcasts");
  World world(2, patient());
  world.run([](Engine& engine) {
    for (const int root : {0, 1}) {
      for (const std::int64_t count : {20'000, 200'000}) {
        const std::string name = std::to_string(root) + " " + std::to_string(count);
        const auto call = [&](int step) {
          std::vector<float> values = filled(static_cast<std::size_t>(count), engine.rank(), step);
          Request r = request(Collective::kBroadcast, name, DataType::kFloat32, {count}, values.data());
          r.signature.root = root;
          EXPECT_TRUE(engine.wait(submit_request(engine, awaited(std::move(r)))).ok());
          EXPECT_EQ(values, filled(static_cast<std::size_t>(count), root, step));
        };
        EXPECT_EQ(meet(engine, 39, call), 39U);
      }
    }
  });
}

TEST(RoundsInMemory, OfTwoRanksAreNotForEverything) {
  World world(2, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 5; ++step) {
      std::vector<float> large = filled(262'145, engine.rank(), step);
      ASSERT_TRUE(sum(engine, "large", large).ok());
    }
    EXPECT_EQ(engine.n_direct(), 0U);
  });
}

TEST(RoundsInMemory, OfGroupsBroadcastsAndBarriers) {
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 6; ++step) {
      std::array<std::vector<float>, 2> tensors{filled(5, engine.rank(), step), filled(17, engine.rank(), step)};
      Request group = request(Collective::kAllreduce, "g", DataType::kFloat32, {5}, tensors[0].data());
      group.signature.op = ReduceOp::kAverage;
      group.signature.tensors.push_back({DataType::kFloat32, {17}});
      group.memory.push_back(
          {reinterpret_cast<const std::byte*>(tensors[1].data()), reinterpret_cast<std::byte*>(tensors[1].data())});
      ASSERT_TRUE(engine.wait(submit_request(engine, awaited(std::move(group)))).ok());
      for (const auto& tensor : tensors) EXPECT_EQ(tensor.back(), expected(3, step) / 3);

      std::vector<float> value{static_cast<float>(10 * step + engine.rank())};
      Request broadcast = request(Collective::kBroadcast, "b", DataType::kFloat32, {1}, value.data());
      broadcast.signature.root = 1;
      ASSERT_TRUE(engine.wait(submit_request(engine, awaited(std::move(broadcast)))).ok());
      EXPECT_EQ(value[0], static_cast<float>(10 * step + 1));

      Request barrier;
      barrier.name = "barrier";
      barrier.signature.collective = Collective::kBarrier;
      ASSERT_TRUE(engine.wait(submit_request(engine, awaited(std::move(barrier)))).ok());
    }
    EXPECT_GT(engine.n_direct(), 0U);
  });
}

// A thread that has no patience, and finds the engine taken, leaves its call to whoever has it; and that one must not
// sleep at the round to which the call has come. Nobody rings for those that meet.
TEST(RoundsInMemory, NobodySleepsOverOne) {
  constexpr auto kRounds = static_cast<int>(repetitions(2000));
  WorldOptions options;
  options.config.spin_microseconds = 0;
  World world(2, options);
  std::barrier together(4);
  std::atomic<bool> is_lost{false};
  world.run([&](Engine& engine) {
    std::vector<float> values(4);
    ASSERT_TRUE(sum(engine, "x", values).ok());
    std::array<float, 2> never{};  // each rank polls for what the other has not called
    const auto submit = [&](int rank) {
      return submit_request(engine, request(Collective::kAllreduce, "of " + std::to_string(rank), DataType::kFloat32,
                                            {1}, &never[static_cast<std::size_t>(rank)]));
    };
    const Engine::OperationPtr own = submit(engine.rank());
    std::thread poller([&] {
      for (int round = 0; round < kRounds && !is_lost; ++round) {
        together.arrive_and_wait();
        for (int i = 0; i < 10; ++i) engine.poll(own);
        together.arrive_and_wait();
      }
    });
    for (int round = 0; round < kRounds && !is_lost; ++round) {
      together.arrive_and_wait();
      const auto operation =
          submit_request(engine, awaited(request(Collective::kAllreduce, "x", DataType::kFloat32, {4}, values.data())));
      const Status status =
          engine.wait(operation, nullptr, std::chrono::steady_clock::now() + std::chrono::seconds(10));
      EXPECT_TRUE(status.ok()) << "round " << round << ": " << status.message();
      if (!status.ok()) is_lost = true;
      together.arrive_and_wait();
    }
    poller.join();
    EXPECT_TRUE(engine.wait(submit(1 - engine.rank())).ok());
    EXPECT_TRUE(engine.wait(own).ok());
  });
}

TEST(RoundsInMemory, AreLeftWhenARankIsLate) {
  const Watchdog watchdog("a late rank");
  World world(3);
  OneIsLate late(3);
  world.run([&late](Engine& engine) {
    for (int step = 0; step < 12; ++step) {
      std::vector<float> values = filled(9, engine.rank(), step);
      const bool is_late = engine.rank() == step % 3;
      if (is_late) late.wait_for_others(step);
      const auto operation = submit_request(engine, sum_of("x", values));
      ASSERT_TRUE((is_late ? engine.wait(operation) : late.wait(engine, operation)).ok());
      ASSERT_EQ(values, std::vector<float>(9, expected(3, step)));
    }
    EXPECT_LT(engine.n_direct(), 11U) << "who sleeps has left the round";
  });
}

Request early(Request r) {
  r.is_early = true;
  return awaited(std::move(r));
}

// A rank that comes early, and waits when all others have come.
TEST(RoundsInMemory, StayOpenForWhoComesEarly) {
  const Watchdog watchdog("early ranks");
  World world(2, patient());
  std::barrier together(2);
  world.run([&](Engine& engine) {
    const auto call = [&](int step) {
      std::vector<float> values = filled(20'000, engine.rank(), step);
      const bool is_early = step % 2 == engine.rank();
      if (!is_early) together.arrive_and_wait();
      const auto operation = submit_request(engine, is_early ? early(sum_of("x", values)) : sum_of("x", values));
      if (is_early) together.arrive_and_wait();
      if (!is_early) {
        EXPECT_TRUE(engine.wait(operation).ok());
      }
      together.arrive_and_wait();
      ASSERT_TRUE(engine.wait(operation).ok());
      ASSERT_EQ(values, std::vector<float>(20'000, expected(2, step)));
    };
    call(0);
    EXPECT_EQ(meet(engine, 12, [&](int i) { call(i + 1); }), 12U);
  });
}

// Ranks that come early and wait for nothing before one's call is over that goes by the log, come it first or last.
TEST(RoundsInMemory, ThatAreAvoidedDoNotNeedWhoCameEarlyToWait) {
  const Watchdog watchdog("early ranks that do not wait");
  for (const int n_ranks : {2, 3}) {
    World world(n_ranks);
    std::barrier together(n_ranks);
    world.run([&](Engine& engine) {
      std::vector<float> values = filled(3000, engine.rank(), 0);
      ASSERT_TRUE(sum(engine, "x", values).ok());
      for (int step = 0; step < 60; ++step) {
        const bool avoids = engine.rank() == step % n_ranks;
        const bool is_first = avoids == (step % 4 < 2);
        values = filled(3000, engine.rank(), step);
        if (!is_first) together.arrive_and_wait();
        Request r = sum_of("x", values);
        r.is_awaited = r.is_early = !avoids;
        const auto operation = submit_request(engine, std::move(r));
        if (is_first) together.arrive_and_wait();
        if (avoids) {
          EXPECT_TRUE(engine.wait(operation).ok());
        }
        together.arrive_and_wait();
        ASSERT_TRUE(engine.wait(operation).ok());
        ASSERT_EQ(values, std::vector<float>(3000, expected(n_ranks, step)));
      }
    });
  }
}

// Rank 0 has no room for what rank 1 has come to early, and reports it to itself: only the closing tells rank 1.
TEST(RoundsInMemory, ThatAreClosedWakeWhoCameEarly) {
  const Watchdog watchdog("an early rank that sleeps");
  constexpr std::size_t kCount = 262'144;
  constexpr std::size_t kOfZero = SharedArena::kLargeBuffers;  // early calls of rank 0, which take all its buffers
  World world(2);
  std::barrier together(2);
  world.run([&](Engine& engine) {
    std::array<std::vector<float>, kOfZero + 1> tensors;
    const auto call = [&](std::size_t i) { return sum_of("call " + std::to_string(i), tensors[i]); };
    const auto is_early = [&](std::size_t i) { return (i < kOfZero) == (engine.rank() == 0); };
    const auto come_late = [&] {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (is_early(i)) continue;
        EXPECT_TRUE(engine.wait(submit_request(engine, call(i))).ok());
      }
    };
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = filled(kCount, engine.rank(), 0);
      ASSERT_TRUE(engine.wait(submit_request(engine, call(i))).ok());
    }
    for (int step = 0; step < 20; ++step) {
      for (auto& tensor : tensors) tensor = filled(kCount, engine.rank(), step);
      std::vector<std::shared_ptr<Operation>> early_calls;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (is_early(i)) early_calls.push_back(submit_request(engine, early(call(i))));
      }
      together.arrive_and_wait();
      if (engine.rank() == 0) come_late();
      together.arrive_and_wait();
      if (engine.rank() == 1) come_late();
      for (const auto& operation : early_calls) ASSERT_TRUE(engine.wait(operation).ok());
      for (const auto& tensor : tensors) ASSERT_EQ(tensor, std::vector<float>(kCount, expected(2, step)));
    }
  });
}

TEST(RoundsInMemory, OfSeveralThreadsInSeveralSets) {
  const Watchdog watchdog("threads");
  World world(3);
  world.run([](Engine& engine) {
    const std::array<std::uint32_t, 2> sets{add_set(engine, {0, 1}), add_set(engine, {1, 2})};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t set = i == 2 ? 0 : sets[static_cast<std::size_t>(i)];
      const bool is_in = i == 2 || engine.rank() == i || engine.rank() == i + 1;
      if (!is_in) continue;
      threads.emplace_back([&engine, set, i] {
        const float total = i == 0 ? 3 : i == 1 ? 5 : 6;
        for (int step = 0; step < 100; ++step) {
          std::vector<float> values = filled(4, engine.rank(), step);
          ASSERT_TRUE(sum(engine, "t" + std::to_string(i), values, true, set).ok());
          ASSERT_EQ(values.front(), total * static_cast<float>(step + 1)) << i;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Ranks hear of the failure where they have come to a round of the only other name, which must not stay open for that.
TEST(RoundsInMemory, EndWhereRanksHearOfADuplicateAtOne) {
  const Watchdog watchdog("a duplicate beside one other name");
  for (int i = 0; i < 20; ++i) {
    World world(2, patient());
    std::latch is_duplicate(1);
    world.run([&](Engine& engine) {
      std::vector<float> values(4, 1);
      std::vector<float> x(4, 1);
      std::vector<float> twice(4, 1);
      const auto other = [&](int) { EXPECT_TRUE(sum(engine, "other", values).ok()); };
      const auto asynchronous = [&](std::vector<float>& memory) {
        Request r = sum_of("x", memory);
        r.is_awaited = false;
        return submit_request(engine, std::move(r));
      };
      for (int k = 0; k < 3; ++k) other(k);
      EXPECT_GT(meet(engine, 1, other), 0U);
      if (engine.rank() == 0) is_duplicate.wait();
      const Engine::OperationPtr first = asynchronous(x);
      if (engine.rank() == 1) {
        EXPECT_FALSE(engine.wait(asynchronous(twice)).ok());
        is_duplicate.count_down();
      }
      for (int k = 0; k < 20; ++k) other(k);
      static_cast<void>(engine.wait(first));  // it may have been carried out before the duplicate is taken in
      for (int k = 0; k < 3; ++k) other(k);   // all go on
      EXPECT_TRUE(sum(engine, "x", x).ok());
    });
  }
}

// That all have made calls since is what tells the coordinator that nobody else will make the duplicate. It hears
// nothing of direct rounds.
TEST(RoundsInMemory, AreNoneUntilAllHaveGoneOnFromADuplicate) {
  const Watchdog watchdog("calls after a duplicate");
  World world(2, patient());
  std::latch has_failed(1);
  world.run([&](Engine& engine) {
    std::vector<float> values(4, 1);
    const auto other = [&](int) { EXPECT_TRUE(sum(engine, "other", values).ok()); };
    for (int i = 0; i < 3; ++i) other(i);
    EXPECT_GT(meet(engine, 1, other), 0U);
    if (engine.rank() == 1) {
      std::vector<float> twice(4, 1);
      const Engine::OperationPtr first = submit_request(engine, sum_of("x", values));
      EXPECT_FALSE(engine.wait(submit_request(engine, sum_of("x", twice))).ok());
      EXPECT_FALSE(engine.wait(first).ok());
      has_failed.count_down();
    } else {
      has_failed.wait();
      EXPECT_FALSE(sum(engine, "x", values).ok());
    }
    const std::uint64_t n_before = engine.n_direct();
    other(0);
    EXPECT_EQ(engine.n_direct(), n_before);
    EXPECT_TRUE(sum(engine, "x", values).ok());
    EXPECT_GT(meet(engine, 1, other), 0U) << "they go on";
  });
}

}  // namespace
}  // namespace ciranda
