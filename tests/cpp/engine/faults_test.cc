// Ranks that die or leave, at any moment, with requests in flight: nobody hangs, and everybody hears who it was.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <latch>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::request;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr int kFaultSteps = 4;
constexpr int kNever = std::numeric_limits<int>::max();
constexpr std::array<std::int64_t, 6> kFaultCounts{1, 700, 3000, 5, 20'000, 0};

// Small slots and rings, so that there are many moments at which somebody can be lost.
WorldOptions small_options(Layout layout, int size) {
  WorldOptions options = options_for(layout, size);
  options.fabric.slot_bytes = 4096;
  options.fabric.ring_bytes = 4096;
  options.config.slot_bytes = 4096;
  options.config.one_shot_bytes = 4096;
  return options;
}

// One rank's requests of one step: allreduces of several sizes, a broadcast, an allgather.
class Step {
 public:
  Step(Engine& engine, int step) : engine_(engine), step_(step) {}

  // `on_done` is called when the third request completes, on whatever thread that happens: in the middle of it, if
  // `directly`.
  void submit(const std::function<void()>& on_done, bool directly) {
    for (const std::int64_t count : kFaultCounts) {
      tensors_.emplace_back(static_cast<std::size_t>(count), engine_.rank() + 1 + step_);
      auto r = request(Collective::kAllreduce, "t" + std::to_string(tensors_.size()), DataType::kInt32, {count},
                       tensors_.back().data());
      r.is_deferrable = tensors_.size() % 2 == 0;
      Operation::Callback callback;
      if (tensors_.size() == 3) callback = [on_done](const Operation&) { on_done(); };
      r.calls_back_directly = directly;
      operations_.push_back(submit_request(engine_, std::move(r), std::move(callback)));
    }
    root_ = step_ % engine_.size();
    tensors_.emplace_back(5000, engine_.rank());
    auto broadcast = request(Collective::kBroadcast, "b", DataType::kInt32, {5000}, tensors_.back().data());
    broadcast.signature.root = root_;
    operations_.push_back(submit_request(engine_, std::move(broadcast)));
    tensors_.emplace_back(100 * engine_.rank(), engine_.rank());
    operations_.push_back(submit_request(engine_, request(Collective::kAllgather, "g", DataType::kInt32,
                                                          {100 * engine_.rank()}, tensors_.back().data())));
  }

  // The first failure, if any. A success must have brought the right values, whatever became of the others.
  Status wait(const std::function<void()>& after_each) {
    Status first;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Status status = engine_.wait(operations_[i]);
      if (status.ok()) check(i);
      if (!status.ok() && first.ok()) first = status;
      after_each();
    }
    return first;
  }

 private:
  void check(std::size_t i) const {
    const int n = engine_.size();
    if (i < kFaultCounts.size()) {
      for (const std::int32_t value : tensors_[i]) ASSERT_EQ(value, n * (n + 1) / 2 + n * step_) << i;
    } else if (i == kFaultCounts.size()) {
      for (const std::int32_t value : tensors_[i]) ASSERT_EQ(value, root_);
    } else {
      const OutputBuffer& output = operations_[i]->outputs().front();
      const auto* values = reinterpret_cast<const std::int32_t*>(output.data.get());
      std::size_t at = 0;
      for (int rank = 0; rank < n; ++rank) {
        for (int row = 0; row < 100 * rank; ++row, ++at) ASSERT_EQ(values[at], rank);
      }
    }
  }

  Engine& engine_;
  int step_;
  int root_ = 0;
  std::vector<std::vector<std::int32_t>> tensors_;
  std::vector<Engine::OperationPtr> operations_;
};

enum class Moment : std::uint8_t { kBeforeSubmit, kAfterSubmit, kInCallback, kBetweenWaits };
constexpr int kNumMoments = 4;

// Runs the steps of one rank; calls `strike` at the step and moment asked for. Returns the first failure.
Status run_steps(Engine& engine, int strike_step, Moment strike_moment, const std::function<void()>& strike,
                 bool directly = true) {
  for (int step = 0; step < kFaultSteps; ++step) {
    // By value: a callback may come after this function has returned its first failure.
    const auto at = [step, strike_step, strike_moment, strike](Moment moment) {
      if (step == strike_step && moment == strike_moment) strike();
    };
    Step requests(engine, step);
    at(Moment::kBeforeSubmit);
    requests.submit([at] { at(Moment::kInCallback); }, directly);
    at(Moment::kAfterSubmit);
    int n_waited = 0;
    const Status status = requests.wait([&] {
      if (++n_waited == 2) at(Moment::kBetweenWaits);
    });
    if (!status.ok()) return status;
  }
  return {};
}

Status submit_one_more(Engine& engine) {
  float value = 1;
  return engine.wait(submit_request(engine, request(Collective::kAllreduce, "more", DataType::kFloat32, {1}, &value)));
}

class FaultsTest : public ::testing::TestWithParam<std::tuple<int, Layout>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  WorldOptions options() const { return small_options(std::get<1>(GetParam()), size()); }
};

TEST_P(FaultsTest, DeathAtAnyMomentIsNamedToEverySurvivor) {
  for (unsigned seed = 0; seed < repetitions(40); ++seed) {
    const Watchdog watchdog("death, seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto dying = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto step = static_cast<int>(random() % kFaultSteps);
    const auto moment = static_cast<Moment>(random() % kNumMoments);
    // Somebody else may be the one at whose moment it happens: kill() is not the victim's doing.
    const auto striker = static_cast<int>(random() % static_cast<unsigned>(size()));
    World world(size(), options());
    world.run([&](Engine& engine) {
      const bool strikes = engine.rank() == striker;
      const Status status = run_steps(engine, strikes ? step : kNever, moment, [&] { world.fabric().kill(dying); });
      const Status later = submit_one_more(engine);
      EXPECT_EQ(later.kind(), ErrorKind::kRanksLost) << later.message();
      if (engine.rank() == dying) return;  // to itself it seems that all others died
      const std::string name = "rank " + std::to_string(dying) + " (host";
      if (!status.ok()) {
        EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
        EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("is gone: its connection closed without a goodbye"), std::string::npos);
      }
      EXPECT_NE(later.message().find(name), std::string::npos) << later.message();
    });
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// Mappings of files in /dev/shm.
int n_shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("/dev/shm/") != std::string::npos ? 1 : 0;
  return n;
}

// The first collective of a set makes the memory that its ranks share.
TEST_P(FaultsTest, DeathAsASetBeginsIsNamedToEverySurvivorAndLeavesNoMemory) {
  const int n_before = n_shared_mappings();
  for (unsigned seed = 0; seed < repetitions(30); ++seed) {
    const Watchdog watchdog("death as a set begins, seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto dying = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto n_yields = random() % 400;
    std::vector<int> everyone(static_cast<std::size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    {
      World world(size(), options());
      std::latch all_ready(size());
      std::thread killer([&] {
        all_ready.wait();
        for (auto i = n_yields; i > 0; --i) std::this_thread::yield();
        world.fabric().kill(dying);
      });
      world.run([&](Engine& engine) {
        const auto set = engine.form_set(everyone, 0);
        EXPECT_TRUE(set.ok()) << set.status().message();
        std::vector<std::int32_t> values(3000, engine.rank() + 1);
        auto r = request(Collective::kAllreduce, "x", DataType::kInt32, {3000}, values.data());
        r.process_set = set.ok() ? set.value() : 0;
        all_ready.count_down();
        const Status status = engine.wait(submit_request(engine, std::move(r)));
        Status later = submit_one_more(engine);
        while (later.ok()) later = submit_one_more(engine);
        EXPECT_EQ(later.kind(), ErrorKind::kRanksLost) << later.message();
        if (status.ok()) {
          EXPECT_EQ(values.back(), size() * (size() + 1) / 2);
        } else {
          EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
        }
        if (engine.rank() == dying) return;
        const std::string name = "rank " + std::to_string(dying) + " (host";
        EXPECT_NE(later.message().find(name), std::string::npos) << later.message();
      });
      killer.join();
    }
    EXPECT_EQ(n_shared_mappings(), n_before);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_P(FaultsTest, TwoDeathsAtOnceFailEverything) {
  if (size() < 3) GTEST_SKIP() << "two die and one survives";
  for (unsigned seed = 0; seed < repetitions(10); ++seed) {
    const Watchdog watchdog("two deaths, seed " + std::to_string(seed));
    World world(size(), options());
    const auto moment = static_cast<Moment>(seed % kNumMoments);
    world.run([&](Engine& engine) {
      const bool dies = engine.rank() < 2;
      const int step = static_cast<int>(seed) % kFaultSteps;
      const Status status =
          run_steps(engine, dies ? step : kNever, moment, [&] { world.fabric().kill(engine.rank()); });
      EXPECT_EQ(submit_one_more(engine).kind(), ErrorKind::kRanksLost);
      if (!dies && !status.ok()) {
        EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
      }
    });
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_P(FaultsTest, CleanLeaveAtAnyMomentIsNamedToAllOthers) {
  for (unsigned seed = 0; seed < repetitions(40); ++seed) {
    const Watchdog watchdog("leave, seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto leaver = static_cast<int>(random() % static_cast<unsigned>(size()));
    const auto step = static_cast<int>(random() % kFaultSteps);
    auto moment = static_cast<Moment>(random() % kNumMoments);
    if (moment == Moment::kInCallback) moment = Moment::kAfterSubmit;  // a callback that shuts down may come too late
    World world(size(), options());
    world.run([&](Engine& engine) {
      const bool leaves = engine.rank() == leaver;
      const Status status = run_steps(engine, leaves ? step : kNever, moment, [&] { engine.shutdown(); });
      const Status later = submit_one_more(engine);
      EXPECT_EQ(later.kind(), ErrorKind::kAborted) << later.message();
      const std::string name = "rank " + std::to_string(leaver);
      EXPECT_NE(later.message().find(name), std::string::npos) << later.message();
      if (status.ok()) return;
      EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(leaves ? "shut down" : "has shut down"), std::string::npos) << status.message();
    });
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_P(FaultsTest, AllLeaveAtDifferentMoments) {
  for (unsigned seed = 0; seed < repetitions(40); ++seed) {
    const Watchdog watchdog("all leave, seed " + std::to_string(seed));
    World world(size(), options());
    world.run([&](Engine& engine) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(engine.rank()));
      const auto step = static_cast<int>(random() % kFaultSteps);
      const auto moment = static_cast<Moment>(random() % kNumMoments);
      const auto leave = [&engine] { engine.shutdown(); };
      const Status status = run_steps(engine, step, moment, leave, false);
      if (status.ok()) return;
      EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
      EXPECT_NE(status.message().find("shut down"), std::string::npos) << status.message();
    });
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// What was reported by the leaver too may still be agreed on after its goodbye: nobody may carry it out.
TEST_P(FaultsTest, WhatTheLeaverHadReportedFailsOnTheOthers) {
  for (int leaver = 0; leaver < size(); ++leaver) {
    for (int last = 0; last < size(); ++last) {
      if (last == leaver) continue;
      const Watchdog watchdog("leaver " + std::to_string(leaver) + ", last " + std::to_string(last));
      World world(size(), options());
      std::latch has_left(1);
      std::latch all_but_last(size() - 1);
      world.run([&](Engine& engine) {
        float value = 1;
        if (engine.rank() == last) has_left.wait();
        auto operation = submit_request(engine, request(Collective::kAllreduce, "x", DataType::kFloat32, {1}, &value));
        if (engine.rank() != last) all_but_last.count_down();
        if (engine.rank() == leaver) {
          all_but_last.wait();
          engine.shutdown();
          has_left.count_down();
        }
        const Status status = engine.wait(operation);
        EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
      });
    }
  }
}

TEST_P(FaultsTest, ShutdownWakesTheOtherThreadsThatWait) {
  const Watchdog watchdog("shutdown while others wait");
  World world(size(), options());
  Engine& engine = world.engine(size() - 1);
  constexpr int kThreads = 3;
  std::latch submitted(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      float value = 1;
      auto operation = submit_request(
          engine, request(Collective::kAllreduce, "alone" + std::to_string(i), DataType::kFloat32, {1}, &value));
      submitted.count_down();
      const Status status = engine.wait(operation);
      EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
      EXPECT_NE(status.message().find("shut down before this was done"), std::string::npos) << status.message();
    });
  }
  submitted.wait();
  engine.shutdown();
  for (std::thread& thread : threads) thread.join();
  const Status later = submit_one_more(engine);
  EXPECT_EQ(later.kind(), ErrorKind::kAborted);
  EXPECT_NE(later.message().find("has shut down"), std::string::npos) << later.message();
}

TEST_P(FaultsTest, ShutdownTwiceAndAtOnceIsHarmless) {
  const Watchdog watchdog("shutdown twice");
  World world(size(), options());
  world.run([&](Engine& engine) {
    EXPECT_TRUE(run_steps(engine, kNever, Moment::kBeforeSubmit, [] {}).ok());
    engine.shutdown();
    engine.shutdown();
  });
}

// Ranks 0 and 1 exchange rows, rank 2 only receives. Rank 0 has finished and leaves; then rank 1 leaves in the middle
// of sending to rank 2, which hears of both at once and must not wait for the rest.
TEST(LeaveTest, OfTwoLeaversTheOneThatHadDoneLessIsHeeded) {
  const Watchdog watchdog("two leavers");
  World world(3, small_options(Layout::kChannels, 3));
  std::latch others_have_submitted(2);
  std::latch rank_0_is_done(1);
  std::latch others_have_left(2);
  Status status;
  world.run([&](Engine& engine) {
    float go = 1;
    float small = 1;
    std::vector<std::int64_t> rows(engine.rank() == 2 ? 0 : engine.rank() == 0 ? 10 : 5000);
    const auto submit_scalar = [&](const std::string& name, float& value, Operation::Callback callback) {
      Request r = request(Collective::kAllreduce, name, DataType::kFloat32, {1}, &value);
      r.calls_back_directly = true;
      return submit_request(engine, std::move(r), std::move(callback));
    };
    const auto submit_go = [&](Operation::Callback callback) { return submit_scalar("go", go, std::move(callback)); };
    const auto submit_small = [&](Operation::Callback callback) {
      return submit_scalar("small", small, std::move(callback));
    };
    const auto submit_gather = [&] {
      return submit_request(engine, request(Collective::kAllgather, "gather", DataType::kInt64,
                                            {static_cast<std::int64_t>(rows.size())}, rows.data()));
    };
    if (engine.rank() < 2) {
      static_cast<void>(submit_small(nullptr));
      auto gather = submit_gather();
      others_have_submitted.count_down();
      EXPECT_TRUE(engine.wait(submit_go(nullptr)).ok());
      if (engine.rank() == 0) {
        EXPECT_TRUE(engine.wait(gather).ok());
        rank_0_is_done.count_down();
      }
      rank_0_is_done.wait();
      engine.shutdown();
      others_have_left.count_down();
    } else {
      others_have_submitted.wait();
      Engine::OperationPtr gather;
      std::latch has_submitted(1);
      // What a direct callback submits travels together. The second one blocks, as such must not: it holds rank 2 up.
      static_cast<void>(submit_go([&](const Operation&) {
        static_cast<void>(submit_small([&](const Operation&) { others_have_left.wait(); }));
        gather = submit_gather();
        has_submitted.count_down();
      }));
      has_submitted.wait();
      status = engine.wait(gather);
    }
  });
  EXPECT_EQ(status.kind(), ErrorKind::kAborted) << status.message();
  EXPECT_NE(status.message().find("has shut down"), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(Worlds, FaultsTest,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
