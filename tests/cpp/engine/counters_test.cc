// What the engine counts of its calls, on every way that they take; and for whom the ranks have waited.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/one_is_late.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "observe/counter_page.hpp"

namespace ciranda {
namespace {

using testing::filled;
using testing::kLayouts;
using testing::Layout;
using testing::OneIsLate;
using testing::options_for;
using testing::sum;
using testing::sum_of;
using testing::Watchdog;
using testing::World;

std::uint64_t value(const CounterWord& word) { return word.load(std::memory_order_relaxed); }

// Of calls of all sizes.
struct Counted {
  std::uint64_t direct = 0, others = 0, failed = 0, n_bytes = 0, agree_ns = 0, move_ns = 0;
};
Counted sums(const Engine& engine) {
  Counted sum;
  for (const CallCounters& of : engine.counter_page().calls[static_cast<std::size_t>(Collective::kAllreduce)]) {
    sum.direct += value(of.direct);
    sum.others += value(of.others);
    sum.failed += value(of.failed);
    sum.n_bytes += value(of.n_bytes);
    sum.agree_ns += value(of.agree_ns);
    sum.move_ns += value(of.move_ns);
  }
  return sum;
}

std::uint64_t n_by_algorithms(const Engine& engine) {
  std::uint64_t n = 0;
  for (const AlgorithmCounters& by : engine.counter_page().algorithms) n += value(by.n_calls);
  return n;
}

TEST(CountedCalls, AreThoseThatWereMadeWhateverTheirWay) {
  const Watchdog watchdog("counters");
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(to_string(layout));
    World world(3, options_for(layout, 3));
    world.run([&](Engine& engine) {
      std::vector<float> small(3);
      std::vector<float> large(50'000);
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(sum(engine, "small", small).ok());
        ASSERT_TRUE(sum(engine, "large", large, i % 2 == 0).ok());
      }
      const Counted counted = sums(engine);
      EXPECT_EQ(counted.direct + counted.others, 40U);
      EXPECT_EQ(counted.failed, 0U);
      EXPECT_EQ(counted.n_bytes, 20U * 4 * (3 + 50'000));
      EXPECT_GT(counted.agree_ns, 0U);
      EXPECT_GT(counted.move_ns, 0U);
      std::uint64_t n_on_paths = 0;
      for (const CounterWord& path : engine.counter_page().paths) n_on_paths += value(path);
      EXPECT_EQ(n_on_paths, counted.others);
      EXPECT_EQ(n_by_algorithms(engine), value(engine.counter_page().paths[static_cast<std::size_t>(Path::kPlan)]));
      EXPECT_EQ(value(engine.counter_page().n_waiting), 0U);
      EXPECT_GT(value(engine.counter_page().waited_ns), 0U);
    });
  }
}

TEST(CountedCalls, ThatFailAreCountedAsFailed) {
  const Watchdog watchdog("failed calls");
  World world(2);
  world.run([&](Engine& engine) {
    std::vector<float> values(static_cast<std::size_t>(engine.rank()) + 1);
    EXPECT_FALSE(sum(engine, "differs", values).ok());
    EXPECT_EQ(sums(engine).failed, 1U);
    EXPECT_EQ(value(engine.counter_page().n_waiting), 0U);
  });
}

std::uint64_t waits_for(int rank, World& world) {
  std::uint64_t ns = 0;
  for (int of = 0; of < world.size(); ++of) {
    const CounterPage& page = world.engine(of).counter_page();
    ns += value(page.own_waits_ns[rank]) + value(page.held_up_ns[rank]);
  }
  return ns;
}

// In each layout another part of the engine knows who came last. That is the rank of which the others take reports last
// if they take several at once.
TEST(Waits, AreBookedOnTheRankThatCameLast) {
  const Watchdog watchdog("waits");
  constexpr int kLate = 2;
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(to_string(layout));
    testing::WorldOptions options = options_for(layout, 3);
    options.config.relays = false;  // they report for several ranks at once
    World world(3, options);
    OneIsLate steps(3);
    world.run([&](Engine& engine) {
      for (int step = 0; step < 20; ++step) {
        if (engine.rank() == kLate) steps.wait_for_others(step);
        std::vector<float> values = filled(4, engine.rank(), step);
        const auto operation = submit_request(engine, sum_of("late", values));
        ASSERT_TRUE((engine.rank() == kLate ? engine.wait(operation) : steps.wait(engine, operation)).ok());
      }
      EXPECT_EQ(value(engine.counter_page().own_waits_ns[engine.rank()]), 0U) << "nobody waits for itself";
    });
    for (int other = 0; other < kLate; ++other) EXPECT_GT(waits_for(kLate, world), waits_for(other, world)) << other;
  }
}

TEST(Steps, AreCounted) {
  World world(1);
  world.run([&](Engine& engine) {
    for (int i = 0; i < 3; ++i) engine.count_step();
    EXPECT_EQ(value(engine.counter_page().steps), 3U);
    EXPECT_GT(value(engine.counter_page().last_step_ns), 0U);
  });
}

}  // namespace
}  // namespace ciranda
