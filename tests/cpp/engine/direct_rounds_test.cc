// Calls that ranks carry out by direct rounds, without the log: what holds whether they share memory or send messages.
// What is of one kind alone is in rounds_in_memory_test.cc and rounds_by_messages_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "agree/messages.hpp"
#include "base/agreement_limits.hpp"
#include "engine/engine.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::expect_that_the_last_call_is_told_of_a_missed_rank;
using testing::expected;
using testing::filled;
using testing::Layout;
using testing::meet;
using testing::options_for;
using testing::patient;
using testing::sum;
using testing::sum_of;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

class DirectRoundsTest : public ::testing::TestWithParam<Direct> {
 protected:
  static bool is_in_memory() { return GetParam() == Direct::kInMemory; }
  static WorldOptions options() { return is_in_memory() ? patient() : options_for(Layout::kChannels, 0); }

  // Sums of so many elements, by their name; each is right.
  static auto sums(Engine& engine, const std::string& name, std::size_t count) {
    return [&engine, name, count](int step) {
      std::vector<float> values = filled(count, engine.rank(), step);
      const Status status = sum(engine, name, values);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(values, std::vector<float>(count, expected(engine.size(), step)));
    };
  }

  static void expect_none(const WorldOptions& options, std::size_t count, bool is_awaited) {
    const Watchdog watchdog("no direct rounds");
    World world(3, options);
    world.run([&](Engine& engine) {
      for (int step = 0; step < 4; ++step) {
        std::vector<float> values = filled(count, engine.rank(), step);
        ASSERT_TRUE(sum(engine, "x", values, is_awaited).ok());
        ASSERT_EQ(values, std::vector<float>(count, expected(3, step)));
      }
      EXPECT_EQ(engine.n_direct(), 0U);
    });
  }
};

TEST_P(DirectRoundsTest, TakePlaceFromTheSecondCallOn) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    const Watchdog watchdog("direct rounds");
    World world(n_ranks, options());
    world.run([&](Engine& engine) {
      sums(engine, "first", 1)(0);
      EXPECT_EQ(engine.n_direct(), 0U);
      for (const std::size_t count : {1U, 100U, is_in_memory() ? 4096U : 256U}) {
        EXPECT_EQ(meet(engine, 10, sums(engine, "x" + std::to_string(count), count)), 10U);
      }
    });
  }
}

TEST_P(DirectRoundsTest, AreNotForWhatIsLargeOrIsNotWaitedFor) {
  const std::size_t most_bytes = is_in_memory() ? 16 << 10 : AgreementLimits{}.message_bytes / 3;
  expect_none(options(), most_bytes / sizeof(float) + 1, true);
  expect_none(options(), 3, false);
}

TEST_P(DirectRoundsTest, CanBeTurnedOff) {
  WorldOptions off = options();
  off.config.direct_rounds = false;
  expect_none(off, 3, true);
}

// The lowest rank says so, whatever others say.
TEST_P(DirectRoundsTest, AreForAsMuchAsIsSet) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("as much as is set");
    World world(n_ranks, [n_ranks](int rank) {
      WorldOptions changed = options();
      auto& most_bytes = is_in_memory() ? changed.config.direct_bytes : changed.config.direct_bytes;
      most_bytes = rank > 0 ? rank : 400 * (is_in_memory() ? 1 : n_ranks);
      return changed;
    });
    world.run([](Engine& engine) {
      EXPECT_EQ(meet(engine, 3, sums(engine, "x", 100)), 3U);
      EXPECT_EQ(meet(engine, 3, sums(engine, "y", 101)), 0U);
      const auto agreement = [&](std::size_t n_bytes) { return engine.agreement(Collective::kAllreduce, n_bytes); };
      if (engine.rank() > 0) {
        EXPECT_EQ(agreement(400), "");
        return;
      }
      EXPECT_EQ(agreement(400), is_in_memory() ? "a direct round in shared memory" : "a direct round by messages");
      EXPECT_EQ(agreement(401), "the log");
    });
  }
}

// Each rank decides for itself how it calls, and how long its tensor is; calls of several threads come to rounds.
TEST_P(DirectRoundsTest, MixWithOtherCalls) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("mixed calls");
    World world(n_ranks, options_for(is_in_memory() ? Layout::kArena : Layout::kChannels, 0));
    world.run([&](Engine& engine) {
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 2; ++thread) {
        threads.emplace_back([&engine, n_ranks, thread] {
          for (int step = 0; step < 200; ++step) {
            const bool is_awaited = step % 4 != engine.rank();
            const std::size_t count = step / 20 % 2 == 0 ? 9 : is_in_memory() ? 5000 : 17'000;
            std::vector<float> values = filled(count, engine.rank(), step);
            ASSERT_TRUE(sum(engine, "x" + std::to_string(thread), values, is_awaited).ok());
            ASSERT_EQ(values, std::vector<float>(count, expected(n_ranks, step)));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_GE(engine.n_direct(), is_in_memory() ? 0U : 1U);  // in memory a rank that sleeps has closed its rounds
    });
  }
}

// One rank changes its mind when the others rely on what was agreed.
TEST_P(DirectRoundsTest, ADifferenceIsAnErrorOnAllRanks) {
  const Watchdog watchdog("a difference");
  World world(3, options());
  world.run([](Engine& engine) {
    EXPECT_EQ(meet(engine, 3, sums(engine, "x", 4)), 3U);
    std::vector<float> other = filled(engine.rank() == 1 ? 5 : 4, engine.rank(), 0);
    const Status status = sum(engine, "x", other);
    EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
    EXPECT_TRUE(contains(status.message(), "[5] on rank 1")) << status.message();
    EXPECT_EQ(meet(engine, 3, sums(engine, "x", 4)), 3U);
  });
}

// What one that leaves has taken part in is done for all; no call after that is, and nobody waits for it.
TEST_P(DirectRoundsTest, EndWhenARankLeaves) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    for (int n_calls = 1; n_calls < 4; ++n_calls) {
      const Watchdog watchdog("rank " + std::to_string(leaver) + " leaves");
      World world(3, options());
      world.run([&](Engine& engine) {
        for (int step = 0; step < n_calls; ++step) sums(engine, "x", 4)(step);
        if (engine.rank() == leaver) return engine.shutdown();
        std::vector<float> values = filled(4, engine.rank(), 0);
        for (const char* name : {"x", "y"}) {
          const Status status = sum(engine, name, values);
          EXPECT_EQ(status.kind(), ErrorKind::kAborted);
          EXPECT_TRUE(contains(status.message(), "rank")) << status.message();
        }
      });
    }
  }
}

// Whoever gives up a wait does not take the call back: it is done when the others come.
TEST_P(DirectRoundsTest, AnInterruptedWaitLeavesTheCallToTheEngine) {
  const Watchdog watchdog("an interrupted wait");
  World world(2, options_for(is_in_memory() ? Layout::kArena : Layout::kChannels, 0));
  std::latch has_given_up(1);
  world.run([&](Engine& engine) {
    sums(engine, "x", 4)(0);
    std::vector<float> values = filled(4, engine.rank(), 1);
    if (engine.rank() == 1) {
      has_given_up.wait();
      ASSERT_TRUE(sum(engine, "x", values).ok());
    } else {
      const auto operation = submit_request(engine, sum_of("x", values));
      const Status status = engine.wait(operation, [] { return true; });
      EXPECT_EQ(status.kind(), ErrorKind::kAborted);
      has_given_up.count_down();
      while (!operation->is_done()) std::this_thread::yield();  // without running the progress loop
      EXPECT_TRUE(operation->status().ok());
    }
    EXPECT_EQ(values.front(), expected(2, 1));
  });
}

// The first call may be done before the second is made; whatever becomes of the two is the same on all ranks.
TEST_P(DirectRoundsTest, ADuplicateIsAnErrorOnAllRanks) {
  const Watchdog watchdog("a duplicate");
  World world(3, options_for(is_in_memory() ? Layout::kArena : Layout::kChannels, 0));
  for (int round = 0; round < 20; ++round) {
    std::array<std::array<ErrorKind, 2>, 3> kinds{};
    world.run([&](Engine& engine) {
      std::vector<float> values = filled(4, engine.rank(), 0);
      ASSERT_TRUE(sum(engine, "x", values).ok());
      std::array<std::vector<float>, 2> both{filled(4, engine.rank(), 0), filled(4, engine.rank(), 0)};
      std::vector<Engine::OperationPtr> operations;
      for (auto& tensor : both) operations.push_back(submit_request(engine, sum_of("x", tensor)));
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const Status status = engine.wait(operations[i]);
        kinds[static_cast<std::size_t>(engine.rank())][i] = status.kind();
        EXPECT_TRUE(status.ok() || contains(status.message(), "Duplicate name 'x'")) << status.message();
      }
      // A call that comes before the coordinator has heard of the duplicate is taken for another one.
      while (!sum(engine, "x", values).ok()) {
      }
    });
    EXPECT_EQ(kinds[0], kinds[1]);
    EXPECT_EQ(kinds[0], kinds[2]);
  }
}

TEST_P(DirectRoundsTest, AreRememberedWhenARankIsMissed) {
  expect_that_the_last_call_is_told_of_a_missed_rank(options());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DirectRoundsTest, ::testing::Values(Direct::kInMemory, Direct::kByMessages),
                         [](const auto& kind) {
                           return std::string(kind.param == Direct::kInMemory ? "InMemory" : "ByMessages");
                         });

}  // namespace
}  // namespace ciranda
