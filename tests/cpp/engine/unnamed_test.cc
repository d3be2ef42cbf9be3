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
#include <vector>

#include "engine/engine.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "text_matchers.hpp"

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
  static constexpr int kKinds = 5;

  Unnamed(int kind, int rank, int step) : kind_(kind), step_(step) {
    constexpr std::array<std::size_t, kKinds> kCounts{1, 100, 33, 3000, 2};
    values_.assign(kCounts[static_cast<std::size_t>(kind)], static_cast<float>(rank + step));
    shape_ = static_cast<std::int64_t>(values_.size());
    call_.shape = {&shape_, 1};
    call_.memory = {reinterpret_cast<const std::byte*>(values_.data()), reinterpret_cast<std::byte*>(values_.data())};
    if (kind_ == 2) {
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
    if (kind_ == 2) expected = static_cast<float>(step_ + 1);
    if (kind_ == 4) expected = static_cast<float>(step_ + n_ranks - 1);
    EXPECT_EQ(values_, std::vector<float>(values_.size(), expected)) << "kind " << kind_ << ", step " << step_;
  }

 private:
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
