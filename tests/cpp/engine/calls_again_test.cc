// Engine::submit(Call): that a call which is made again, for which the request of the last one serves, is carried out
// by its own terms, with its own memory; and that what is wrong with it is told as of any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "call_of_one.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "repetitions.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::Watchdog;
using testing::World;

// What all ranks choose alike.
struct Wanted {
  std::string name;
  Collective collective;
  ReduceOp op;
  std::int64_t count;
  std::uint32_t lane;
};

struct Pending {
  std::vector<double> input;
  std::vector<double> output;
  std::vector<double> expected;
  Engine::OperationPtr operation;
};

double value_of(int rank, std::int64_t i, int step) { return (rank + 1) * 3 + static_cast<double>(i % 7) + step % 5; }

// Rank r gives r rows more to an allgather.
std::int64_t count_on(const Wanted& terms, int rank) {
  return terms.count + (terms.collective == Collective::kAllgather ? rank : 0);
}

std::vector<double> expected_of(const Wanted& terms, int n_ranks, int step) {
  std::vector<double> result;
  if (terms.collective == Collective::kAllgather) {
    for (int from = 0; from < n_ranks; ++from) {
      for (std::int64_t i = 0; i < count_on(terms, from); ++i) result.push_back(value_of(from, i, step));
    }
    return result;
  }
  for (std::int64_t i = 0; i < terms.count; ++i) {
    double made = value_of(terms.collective == Collective::kBroadcast ? 1 : 0, i, step);
    for (int from = 1; terms.collective == Collective::kAllreduce && from < n_ranks; ++from) {
      const double value = value_of(from, i, step);
      made = terms.op == ReduceOp::kMax ? std::max(made, value) : made + value;
    }
    result.push_back(made);
  }
  return result;
}

Wanted choose(std::mt19937& alike) {
  constexpr std::array kCollectives{Collective::kAllreduce, Collective::kAllreduce, Collective::kBroadcast,
                                    Collective::kAllgather};
  constexpr std::array<std::int64_t, 5> kCounts{4, 4, 4, 300, 9'000};
  return {"n" + std::to_string(alike() % 4), kCollectives.at(alike() % 4),
          alike() % 3 == 0 ? ReduceOp::kMax : ReduceOp::kSum, kCounts.at(alike() % 5),
          static_cast<std::uint32_t>(alike() % 2)};
}

void make_call(Engine& engine, const Wanted& terms, int step, std::mt19937& own, Pending& pending) {
  const int rank = engine.rank();
  const std::int64_t count = count_on(terms, rank);
  for (std::int64_t i = 0; i < count; ++i) pending.input.push_back(value_of(rank, i, step));
  pending.expected = expected_of(terms, engine.size(), step);
  testing::CallOfOne call({.collective = terms.collective}, terms.name, DataType::kFloat64);
  call.has_room_for_all = false;
  if (terms.collective == Collective::kAllreduce) call.op = terms.op;
  if (terms.collective == Collective::kBroadcast) call.root = 1;
  call.tensor.shape = {&count, 1};
  call.lane = terms.lane;
  call.tensor.memory.input = reinterpret_cast<const std::byte*>(pending.input.data());
  if (terms.collective != Collective::kAllgather) {
    pending.output.resize(static_cast<std::size_t>(count));
    call.tensor.memory.output = reinterpret_cast<std::byte*>(pending.output.data());
  }
  call.priority = static_cast<std::int32_t>(own() % 3);
  call.hints.is_deferrable = own() % 2 == 0;
  call.hints.is_awaited = own() % 3 == 0;
  call.hints.is_early = call.hints.is_awaited && own() % 2 == 0;
  pending.operation = own() % 4 == 0 ? submit_request(engine, make_request(call)) : engine.submit(call);
}

void expect_result(Engine& engine, Pending& pending, const std::string& where) {
  ASSERT_TRUE(engine.wait(pending.operation).ok()) << where << ": " << pending.operation->status().message();
  if (pending.output.empty()) {
    ASSERT_EQ(pending.operation->outputs().size(), 1U) << where;
    const auto* const values = reinterpret_cast<const double*>(pending.operation->outputs().front().data.get());
    pending.output.assign(values, values + pending.expected.size());
  }
  EXPECT_EQ(pending.output, pending.expected) << where;
}

TEST(CallsAgain, AreCarriedOutByTheirOwnTerms) {
  constexpr int kSteps = static_cast<int>(repetitions(300));
  for (const Layout layout : kLayouts) {
    for (const int n_ranks : {1, 2, 3}) {
      const Watchdog watchdog("calls again, " + to_string(layout));
      World world(n_ranks, options_for(layout, n_ranks));
      world.run([&](Engine& engine) {
        std::mt19937 alike(7);
        std::mt19937 own(static_cast<unsigned>(engine.rank()));
        for (int step = 0; step < kSteps; ++step) {
          std::vector<std::pair<Wanted, Pending>> all;
          for (std::size_t i = alike() % 3 + 1; i > 0; --i) {
            Wanted terms = choose(alike);
            if (terms.collective == Collective::kBroadcast && n_ranks == 1) terms.collective = Collective::kAllreduce;
            const auto is_pending = [&](const auto& other) {
              return other.first.name == terms.name && other.first.lane == terms.lane;
            };
            if (std::any_of(all.begin(), all.end(), is_pending)) continue;
            all.emplace_back(std::move(terms), Pending{});
          }
          for (auto& [terms, pending] : all) make_call(engine, terms, step, own, pending);
          std::shuffle(all.begin(), all.end(), own);
          for (auto& [terms, pending] : all) {
            expect_result(engine, pending, terms.name + " in step " + std::to_string(step));
          }
        }
      });
    }
  }
}

struct Float4 {
  std::array<float, 4> values{};
  std::int64_t count = 4;
  testing::CallOfOne call() {
    testing::CallOfOne made({}, "x");
    made.tensor.shape = {&count, 1};
    made.tensor.memory.input = reinterpret_cast<const std::byte*>(values.data());
    made.tensor.memory.output = reinterpret_cast<std::byte*>(values.data());
    return made;
  }
};

void sum_again(Engine& engine, Float4& x) {
  x.values.fill(1);
  ASSERT_TRUE(engine.wait(engine.submit(x.call())).ok());
  EXPECT_EQ(x.values.front(), static_cast<float>(engine.size()));
}

TEST(CallsAgain, ThatAreWrongAreToldAsAnyOther) {
  const Watchdog watchdog("wrong calls");
  World world(2);
  world.run([](Engine& engine) {
    Float4 x;
    for (int i = 0; i < 3; ++i) sum_again(engine, x);
    const auto refused = [&](const Call& call, const char* why) {
      const Engine::OperationPtr operation = engine.submit(call);
      ASSERT_TRUE(operation->is_done()) << why;
      EXPECT_TRUE(operation->is_refused()) << why;
      EXPECT_TRUE(contains(operation->status().message(), why)) << operation->status().message();
      sum_again(engine, x);  // its name is free
    };
    const std::int64_t negative = -1;
    testing::CallOfOne call = x.call();
    call.tensor.shape = {&negative, 1};
    refused(call, "-1");
    call = x.call();
    call.tensor.memory = {};
    refused(call, "no memory");
    call = x.call();
    call.process_set = 77;
    refused(call, "process set 77");
    call = x.call();
    call.prescale = 0.5;
    call.tensor.dtype = DataType::kBool;
    refused(call, "bool");
  });
}

// The second call's memory is what it was.
TEST(CallsAgain, OfANameThatIsPendingFail) {
  const Watchdog watchdog("a name twice");
  World world(2);
  std::latch was_refused(1);
  world.run([&](Engine& engine) {
    Float4 x;
    for (int i = 0; i < 3; ++i) sum_again(engine, x);
    x.values.fill(1);
    if (engine.rank() == 1) was_refused.wait();  // until then the first call of rank 0 is pending
    const Engine::OperationPtr first = engine.submit(x.call());
    if (engine.rank() == 0) {
      Float4 twice;
      twice.values.fill(1);
      const Engine::OperationPtr second = engine.submit(twice.call());
      EXPECT_FALSE(engine.wait(second).ok());
      EXPECT_TRUE(contains(second->status().message(), "Duplicate name 'x'")) << second->status().message();
      EXPECT_EQ(twice.values.front(), 1);
      was_refused.count_down();
    }
    static_cast<void>(engine.wait(first));  // it may fail, too
    Float4 y;
    testing::CallOfOne call = y.call();
    call.name = "y";
    EXPECT_TRUE(engine.wait(engine.submit(call)).ok());
  });
}

TEST(CallsAgain, CallBackAsTheyAreTold) {
  const Watchdog watchdog("callbacks");
  World world(2);
  world.run([](Engine& engine) {
    Float4 x;
    std::atomic<int> n_called{0};  // several threads call back
    for (int step = 0; step < 20; ++step) {
      x.values.fill(1);
      testing::CallOfOne call = x.call();
      call.hints.calls_back_directly = step % 2 == 0;
      const bool calls_back = step % 3 != 0;
      Operation::Callback callback = [&](const Operation& done) {
        EXPECT_TRUE(done.status().ok());
        ++n_called;
      };
      const Engine::OperationPtr operation = engine.submit(call, calls_back ? callback : nullptr);
      ASSERT_TRUE(engine.wait(operation).ok());
      EXPECT_EQ(x.values.front(), 2);
    }
    engine.shutdown();  // all callbacks have run
    EXPECT_EQ(n_called, 13);
  });
}

}  // namespace
}  // namespace ciranda
