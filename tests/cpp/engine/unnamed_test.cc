// Calls without a name: that ranks meet for the next of them, whatever it is, as they do for a name; and that those who
// make different calls hear of it as ever.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"
#include "transport/arena.hpp"

namespace ciranda {
namespace {

using testing::meet;
using testing::patient;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

// One of the calls of a program, and the memory that it is about.
class Unnamed {
 public:
  static constexpr int kKinds = 7;

  Unnamed(int kind, int rank, int step) : kind_(kind), step_(step) {
    constexpr std::array<std::size_t, kKinds> kCounts{1, 100, 33, 3000, 2, 70000, 40000};
    values_.assign(kCounts[static_cast<std::size_t>(kind)], static_cast<float>(rank + step));
    shape_ = static_cast<std::int64_t>(values_.size());
    call_.shape = {&shape_, 1};
    call_.memory = {reinterpret_cast<const std::byte*>(values_.data()), reinterpret_cast<std::byte*>(values_.data())};
    if (is_broadcast()) {
      call_.collective = Collective::kBroadcast;
      call_.root = 1;
    }
    if (kind_ == 4) call_.op = ReduceOp::kMax;
  }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;

  // As a blocking call does.
  Status perform(Engine& engine) {
    const auto repeated = engine.repeat(call_);
    if (repeated && *repeated == nullptr) return {};
    return engine.wait(repeated ? *repeated : engine.submit(make_request(call_)));
  }
  Engine::OperationPtr submit(Engine& engine) {
    Request request = make_request(call_);
    request.is_awaited = false;
    return engine.submit(std::move(request));
  }

  void expect_result(int n_ranks) const {
    float expected = static_cast<float>(n_ranks * step_ + n_ranks * (n_ranks - 1) / 2);
    if (is_broadcast()) expected = static_cast<float>(step_ + 1);
    if (kind_ == 4) expected = static_cast<float>(step_ + n_ranks - 1);
    EXPECT_EQ(values_, std::vector<float>(values_.size(), expected)) << "kind " << kind_ << ", step " << step_;
  }

 private:
  bool is_broadcast() const { return kind_ == 2 || kind_ == 6; }

  int kind_;
  int step_;
  std::vector<float> values_;
  std::int64_t shape_ = 0;
  Call call_;
};

TEST(UnnamedCalls, AreMetForWhateverTheirOrder) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    const Watchdog watchdog("unnamed calls");
    World world(n_ranks, patient());
    world.run([&](Engine& engine) {
      const auto perform = [&](int step) {
        Unnamed call(step % 7 % 3, engine.rank(), step);
        EXPECT_TRUE(call.perform(engine).ok());
        call.expect_result(n_ranks);
      };
      EXPECT_EQ(meet(engine, 100, perform), 100U);
    });
  }
}

// Those of two ranks go by buffers that they exchange.
TEST(UnnamedCalls, OfManyBytesAreMetByTwo) {
  const Watchdog watchdog("large unnamed calls");
  World world(2, patient());
  world.run([](Engine& engine) {
    const auto perform = [&](int step) {
      Unnamed call(std::array{3, 5, 0, 6}[static_cast<std::size_t>(step % 4)], engine.rank(), step);
      EXPECT_TRUE(call.perform(engine).ok());
      call.expect_result(2);
    };
    EXPECT_EQ(meet(engine, 100, perform), 100U);
  });
}

TEST(UnnamedCalls, OfSeveralTensorsAreMet) {
  for (const int n_ranks : {2, 3}) {
    const Watchdog watchdog("unnamed groups");
    World world(n_ranks, patient());
    world.run([n_ranks](Engine& engine) {
      const auto perform = [&](int step) {
        const auto of_rank = static_cast<float>(engine.rank() + step);
        const auto sum = static_cast<float>(n_ranks * step + n_ranks * (n_ranks - 1) / 2);
        std::vector<float> first(step % 2 == 0 ? 100 : 33, of_rank);
        std::vector<float> second(200, 2 * of_rank);
        Request group = testing::sum_of("", first);
        group.is_cacheable = false;
        group.signature.tensors.push_back({DataType::kFloat32, {200}});
        auto* const memory = reinterpret_cast<std::byte*>(second.data());
        group.memory.push_back({memory, memory});
        EXPECT_TRUE(engine.wait(engine.submit(std::move(group))).ok());
        EXPECT_EQ(first, std::vector<float>(first.size(), sum)) << step;
        EXPECT_EQ(second, std::vector<float>(second.size(), 2 * sum)) << step;
      };
      EXPECT_EQ(meet(engine, 100, perform), 100U);
    });
  }
}

// More often than there are buffers, which are all there afterwards.
TEST(UnnamedCalls, OfManyBytesThatDifferKeepTheirBuffers) {
  const Watchdog watchdog("large unnamed calls that differ");
  World world(2, patient());
  world.run([](Engine& engine) {
    const auto perform = [&](int step) {
      Unnamed call(5 + step % 2, engine.rank(), step);
      EXPECT_TRUE(call.perform(engine).ok());
      call.expect_result(2);
    };
    for (int step = 0; step < 4; ++step) perform(step);
    for (int step = 0; step < 20 * static_cast<int>(SharedArena::kLargeBuffers); ++step) {
      Unnamed call(5 + (step + engine.rank()) % 2, engine.rank(), step);
      EXPECT_EQ(call.perform(engine).kind(), ErrorKind::kMismatch);
      perform(step);  // by the log, which opens such calls to rounds again
    }
    EXPECT_EQ(meet(engine, 100, perform), 100U);
  });
}

TEST(UnnamedCalls, ThatDifferFailOnAllRanksAndTheNextGoOn) {
  const Watchdog watchdog("differing unnamed calls");
  World world(3, patient());
  world.run([](Engine& engine) {
    for (int step = 0; step < 60; ++step) {
      const bool differs = step % 10 == 9;
      const bool is_other = differs ? engine.rank() == step / 10 % 3 : step % 2 == 1;  // both are known by then
      Unnamed call(is_other ? 1 : 0, engine.rank(), step);
      const Status status = call.perform(engine);
      ASSERT_EQ(status.ok(), !differs) << status.message();
      if (!differs) {
        call.expect_result(3);
        continue;
      }
      EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
      EXPECT_TRUE(contains(status.message(), "Ranks disagree about 'noname." + std::to_string(step) + "'"));
    }
    EXPECT_GT(engine.n_met(), 0U);
  });
}

// Ranks wait at once or later, come late, and call what has a name in between, each as it likes.
TEST(UnnamedCalls, AreMatchedInTheirOrderHoweverEachRankMakesThem) {
  for (const int n_ranks : {2, 3, 4}) {
    const Watchdog watchdog("random unnamed calls");
    WorldOptions options;
    options.config.spin_microseconds = 50;
    World world(n_ranks, options);
    world.run([n_ranks](Engine& engine) {
      std::mt19937 program(7);
      std::mt19937 own(static_cast<unsigned>(engine.rank()) + 1);
      std::vector<std::unique_ptr<Unnamed>> calls;
      std::vector<Engine::OperationPtr> pending;
      const auto finish = [&] {
        for (const auto& operation : pending) ASSERT_TRUE(engine.wait(operation).ok());
        for (const auto& call : calls) call->expect_result(n_ranks);
        pending.clear();
        calls.clear();
      };
      for (int step = 0; step < 400; ++step) {
        const int kind = static_cast<int>(program() % Unnamed::kKinds);
        const bool is_quiet = program() % 64 < 32;
        calls.push_back(std::make_unique<Unnamed>(kind, engine.rank(), step));
        if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (!is_quiet && own() % 4 == 0) {
          pending.push_back(calls.back()->submit(engine));
        } else {
          ASSERT_TRUE(calls.back()->perform(engine).ok());
        }
        if (own() % 8 == 0) finish();
      }
      finish();
    });
  }
}

TEST(UnnamedCalls, OfSeveralThreadsAreEachCarriedOutOnce) {
  const Watchdog watchdog("threads");
  World world(2);
  world.run([](Engine& engine) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&engine] {
        for (int step = 0; step < 100; ++step) {
          Unnamed call(0, engine.rank(), 5);
          ASSERT_TRUE(call.perform(engine).ok());
          call.expect_result(2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(UnnamedCalls, GoOnWithoutWhoHasJoinedAndAreCountedAnewWhenAllHave) {
  const Watchdog watchdog("join");
  World world(3);
  world.run([](Engine& engine) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 20; ++step) {
        Unnamed call(0, engine.rank(), step);
        ASSERT_TRUE(call.perform(engine).ok());
        call.expect_result(3);
      }
      if (engine.rank() != 2) {
        for (int step = 0; step < 5 + epoch; ++step) {
          Unnamed call(0, engine.rank(), step);
          ASSERT_TRUE(call.perform(engine).ok());
          call.expect_result(2);
        }
      }
      Request join;
      join.signature.collective = Collective::kJoin;
      join.is_cacheable = false;
      ASSERT_TRUE(engine.wait(engine.submit(std::move(join))).ok());
    }
  });
}

}  // namespace
}  // namespace ciranda
