// Who runs the progress loop: several threads of a rank, callbacks, waits that are interrupted, and nobody at all.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "engine/worlds_test.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::options_for;
using testing::poll_until_done;
using testing::request;
using testing::Watchdog;
using testing::World;

class ProgressTest : public testing::WorldsTest {};

Request sum_request(const std::string& name, std::int32_t& value) {
  return request(Collective::kAllreduce, name, DataType::kInt32, {}, &value);
}

TEST_P(ProgressTest, SeveralThreadsOfARankSubmitAndWait) {
  const Watchdog watchdog("threads");
  constexpr int kThreads = 3;
  constexpr int kRounds = 60;
  World world(size(), options());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&world, rank, thread] {
        Engine& engine = world.engine(rank);
        for (int i = 0; i < kRounds; ++i) {
          std::int32_t value = rank + i;
          const std::string name = "t" + std::to_string(thread) + "." + std::to_string(i % 3);
          const Status status = engine.wait(submit_request(engine, sum_request(name, value)));
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(value, world.size() * i + world.size() * (world.size() - 1) / 2);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ProgressTest, SeveralThreadsWaitForOneOperation) {
  const Watchdog watchdog("one operation, many waiters");
  World world(size(), options());
  world.run([&](Engine& engine) {
    for (int i = 0; i < 30; ++i) {
      std::int32_t value = engine.rank();
      auto operation = submit_request(engine, sum_request("shared", value));
      std::thread other([&] { EXPECT_TRUE(engine.wait(operation).ok()); });
      EXPECT_TRUE(engine.wait(operation).ok());
      EXPECT_EQ(value, size() * (size() - 1) / 2);
      other.join();
    }
  });
}

// Without spinning every wait soon sleeps, often while another thread holds the progress lock. What may be held back
// must go out all the same: a wait that nobody has seen would never end.
TEST_P(ProgressTest, AWaitThatDoesNotGetTheLockIsSeen) {
  const Watchdog watchdog("unseen waits");
  testing::WorldOptions hasty = options();
  hasty.config.spin_microseconds = 0;
  World world(size(), hasty);
  world.run([&](Engine& engine) {
    const auto rounds = [&](const std::string& name) {
      for (int i = 0; i < 400; ++i) {
        std::array<std::int32_t, 3> values;
        values.fill(engine.rank());
        std::vector<Engine::OperationPtr> operations;
        for (std::size_t k = 0; k < values.size(); ++k) {
          auto r = sum_request(name + std::to_string(k), values[k]);
          r.is_deferrable = true;
          operations.push_back(submit_request(engine, std::move(r)));
        }
        for (const auto& operation : operations) ASSERT_TRUE(engine.wait(operation).ok());
        for (const std::int32_t value : values) ASSERT_EQ(value, size() * (size() - 1) / 2);
      }
    };
    std::thread other([&] { rounds("other"); });
    rounds("one");
    other.join();
  });
}

TEST_P(ProgressTest, PollingAloneCompletesARequest) {
  const Watchdog watchdog("poll");
  World world(size(), options());
  world.run([&](Engine& engine) {
    for (int i = 0; i < 20; ++i) {
      std::int32_t value = engine.rank();
      auto operation = submit_request(engine, sum_request("polled", value));
      poll_until_done(engine, operation);
      EXPECT_TRUE(operation->status().ok());
      EXPECT_EQ(value, size() * (size() - 1) / 2);
    }
  });
}

TEST_P(ProgressTest, TheBackgroundThreadCompletesWhatNobodyWaitsFor) {
  const Watchdog watchdog("background");
  World world(size(), options());
  world.run([&](Engine& engine) {
    constexpr int kRequests = 20;
    std::array<std::int32_t, kRequests> values;
    values.fill(engine.rank());
    std::latch done(kRequests);
    for (std::size_t i = 0; i < kRequests; ++i) {
      auto r = sum_request("b" + std::to_string(i), values[i]);
      static_cast<void>(submit_request(engine, std::move(r), [&](const Operation&) { done.count_down(); }));
    }
    done.wait();
    for (const std::int32_t value : values) EXPECT_EQ(value, size() * (size() - 1) / 2);
  });
}

// What may be held back goes out all the same, as for a thread that waits.
TEST_P(ProgressTest, WhatCallsBackWhenDoneCountsAsWaitedFor) {
  const Watchdog watchdog("called back when done");
  World world(size(), options());
  world.run([&](Engine& engine) {
    for (int i = 0; i < 30; ++i) {
      std::array<std::int32_t, 3> values;
      values.fill(engine.rank());
      std::latch done(3);
      for (std::size_t k = 0; k < values.size(); ++k) {
        auto r = sum_request("held" + std::to_string(k), values[k]);
        r.is_deferrable = true;
        engine.when_done(submit_request(engine, std::move(r)), [&done](const Operation& each) {
          EXPECT_TRUE(each.status().ok()) << each.status().message();
          done.count_down();
        });
      }
      done.wait();
      for (const std::int32_t value : values) EXPECT_EQ(value, size() * (size() - 1) / 2);
    }
  });
}

TEST_P(ProgressTest, CallbacksSubmitAgain) {
  const Watchdog watchdog("callbacks");
  World world(size(), options());
  world.run([&](Engine& engine) {
    constexpr std::int32_t kLinks = 50;
    std::int32_t value = 0;
    std::int32_t n_links = 0;
    std::latch done(1);
    const std::function<void(const Operation&)> next = [&](const Operation& operation) {
      EXPECT_TRUE(operation.status().ok()) << operation.status().message();
      EXPECT_EQ(value, n_links * size());
      if (n_links == kLinks) return done.count_down();
      value = ++n_links;
      // The name is free again before its callback runs.
      static_cast<void>(submit_request(engine, sum_request("chain", value), next));
    };
    static_cast<void>(submit_request(engine, sum_request("chain", value), next));
    done.wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ProgressTest,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

// The background thread leaves to a thread that waits what is left of a burst, and sleeps: if that one had looked for
// the last time, nobody would hear of what comes. That takes chance, so there are many rounds.
TEST(BurstsTest, EndBesideAWait) {
  const Watchdog watchdog("a burst beside a wait");
  constexpr std::size_t kBurst = 24;
  testing::WorldOptions options;
  options.config.spin_microseconds = 50;
  World world(2, options);
  world.run([](Engine& engine) {
    for (std::uint64_t round = 0; round < repetitions(1500); ++round) {
      const auto begin = std::chrono::steady_clock::now();
      std::latch all(kBurst);
      std::thread waiter([&engine] {
        for (int i = 0; i < 4; ++i) {
          std::int32_t value = 1;
          auto r = sum_request("waited for", value);
          r.is_awaited = true;
          EXPECT_TRUE(engine.wait(submit_request(engine, std::move(r))).ok());
        }
      });
      std::array<std::int32_t, kBurst> values{};
      for (std::size_t i = 0; i < kBurst; ++i) {
        static_cast<void>(submit_request(engine, sum_request(std::to_string(i), values[i]),
                                         [&](const Operation&) { all.count_down(); }));
        const bool pauses = engine.rank() == 1 && i % 7 == 6;
        if (pauses) std::this_thread::sleep_for(std::chrono::microseconds(20 * (round % 9)));
      }
      waiter.join();
      all.wait();
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3)) << "round " << round;
    }
  });
}

// --- signals

extern "C" void note_nothing(int) {}

// A handler for SIGUSR1, without SA_RESTART, for as long as it lives.
class SignalHandler {
 public:
  SignalHandler() {
    struct sigaction action {};
    action.sa_handler = note_nothing;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~SignalHandler() { sigaction(SIGUSR1, &before_, nullptr); }
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;

 private:
  struct sigaction before_ {};
};

TEST(InterruptTest, ASignalEndsAWaitAndTheOperationGoesOn) {
  const Watchdog watchdog("signal");
  const SignalHandler handler;
  World world(2);
  Engine& engine = world.engine(0);
  std::int32_t value = 1;
  auto operation = submit_request(engine, sum_request("x", value));
  std::atomic<bool> gives_up{false};
  std::atomic<bool> has_returned{false};
  Status status;
  std::thread waiter([&] {
    status = engine.wait(operation, [&] { return gives_up.load(); });
    has_returned = true;
  });
  gives_up = true;
  while (!has_returned.load()) {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(status.kind(), ErrorKind::kAborted);
  EXPECT_TRUE(status.message().find("the wait was interrupted") != std::string::npos) << status.message();
  EXPECT_FALSE(operation->is_done());
  std::int32_t other = 2;
  EXPECT_TRUE(world.engine(1).wait(submit_request(world.engine(1), sum_request("x", other))).ok());
  EXPECT_TRUE(engine.wait(operation).ok());
  EXPECT_EQ(value, 3);
}

// A signal may come while the waiting thread runs the progress loop: no system call is there to be cut short by it.
TEST(InterruptTest, ASignalThatCameBeforeTheThreadSleptIsNotLost) {
  const Watchdog watchdog("early signal");
  World world(2);
  Engine& engine = world.engine(0);
  std::int32_t value = 1;
  auto operation = submit_request(engine, sum_request("x", value));
  EXPECT_EQ(engine.wait(operation, [] { return true; }).kind(), ErrorKind::kAborted);
  EXPECT_FALSE(operation->is_done());
  const Status late = engine.wait(operation, {}, std::chrono::steady_clock::now());
  EXPECT_EQ(late.kind(), ErrorKind::kTimeout);
  EXPECT_EQ(late.message(), "the operation was not done in time");
}

TEST(InterruptTest, ASignalThatIsNoReasonToGiveUpDoesNotEndTheWait) {
  const Watchdog watchdog("harmless signal");
  const SignalHandler handler;
  World world(2);
  Engine& engine = world.engine(0);
  std::int32_t value = 1;
  auto operation = submit_request(engine, sum_request("x", value));
  std::atomic<int> n_asked{0};
  std::thread waiter([&] {
    EXPECT_TRUE(engine
                    .wait(operation,
                          [&] {
                            ++n_asked;
                            return false;
                          })
                    .ok());
  });
  while (n_asked.load() < 3) {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  std::int32_t other = 2;
  EXPECT_TRUE(world.engine(1).wait(submit_request(world.engine(1), sum_request("x", other))).ok());
  waiter.join();
}

// --- idleness

struct Usage {
  double cpu_seconds;
  long n_wakes;
};

Usage usage() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(u.ru_utime) + seconds(u.ru_stime), u.ru_nvcsw};
}

// Here time itself is what is tested: in 0.3 s nothing may happen. A busy machine spoils one try (the threads are still
// on their way to sleep); engines that do not rest spoil every one.
void expect_idle() {
  constexpr int kTries = 5;
  Usage used{};
  for (int i = 0; i < kTries; ++i) {
    const Usage before = usage();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Usage after = usage();
    used = {after.cpu_seconds - before.cpu_seconds, after.n_wakes - before.n_wakes};
    if (used.cpu_seconds < 0.003 && used.n_wakes < 8) return;
  }
  ADD_FAILURE() << "not idle: " << used.cpu_seconds << " s of CPU and " << used.n_wakes << " wakes in 0.3 s";
}

class IdleTest : public ::testing::TestWithParam<Layout> {};

TEST_P(IdleTest, EnginesWithNothingToDoUseNoCpu) {
  World world(4, options_for(GetParam(), 4));
  world.run([](Engine& engine) {
    std::int32_t value = 1;
    ASSERT_TRUE(engine.wait(submit_request(engine, sum_request("x", value))).ok());
  });
  expect_idle();
}

TEST_P(IdleTest, ThreadsThatWaitForALateRankUseNoCpu) {
  const Watchdog watchdog("idle while waiting");
  World world(4, options_for(GetParam(), 4));
  std::latch submitted(3);
  std::vector<std::thread> threads;
  for (int rank = 1; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      std::int32_t value = rank;
      auto operation = submit_request(world.engine(rank), sum_request("late", value));
      submitted.count_down();
      EXPECT_TRUE(world.engine(rank).wait(operation).ok());
      EXPECT_EQ(value, 6);
    });
  }
  submitted.wait();
  expect_idle();
  std::int32_t value = 0;
  EXPECT_TRUE(world.engine(0).wait(submit_request(world.engine(0), sum_request("late", value))).ok());
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Layouts, IdleTest, ::testing::ValuesIn(kLayouts),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace ciranda
