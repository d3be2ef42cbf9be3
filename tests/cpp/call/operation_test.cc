// Operation: done once, seen by every thread; sleeping ends by completion, a signal, or the time given, and by nothing
// that a test would have to wait for.
#include "call/operation.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::chrono::minutes kForever{5};  // a test that gets there has failed

// A thread that sleeps on an operation once, and can be seen to sleep.
class Sleeper {
 public:
  Sleeper(const Operation& operation, std::optional<nanoseconds> at_most)
      : thread_([this, &operation, at_most] {
          id_.set_value(static_cast<pid_t>(syscall(SYS_gettid)));
          result_.set_value(operation.sleep_until_done(at_most));
        }) {
    tid_ = id_.get_future().get();
  }
  ~Sleeper() { thread_.join(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // The kernel says so: until then nothing is known to be in a futex.
  void wait_until_asleep() const {
    const std::string path = "/proc/self/task/" + std::to_string(tid_) + "/stat";
    for (char state = 0; state != 'S'; std::this_thread::yield()) {
      std::ifstream stat(path);
      std::string line;
      std::getline(stat, line);
      const auto end_of_name = line.rfind(')');
      state = end_of_name == std::string::npos ? '\0' : line[end_of_name + 2];
    }
  }
  void interrupt() { pthread_kill(thread_.native_handle(), SIGUSR1); }
  bool result() { return result_.get_future().get(); }

 private:
  pid_t tid_ = 0;
  std::promise<pid_t> id_;
  std::promise<bool> result_;
  std::thread thread_;
};

// SIGUSR1 does nothing but interrupt, while this lives.
class InterruptingSignal {
 public:
  InterruptingSignal() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, &before_);
  }
  ~InterruptingSignal() { sigaction(SIGUSR1, &before_, nullptr); }
  InterruptingSignal(const InterruptingSignal&) = delete;
  InterruptingSignal& operator=(const InterruptingSignal&) = delete;

 private:
  struct sigaction before_ {};
};

// --- completion

TEST(Operation, IsPendingUntilCompleted) {
  Operation operation;
  EXPECT_FALSE(operation.is_done());
  operation.complete(Status::ok_status());
  EXPECT_TRUE(operation.is_done());
  EXPECT_TRUE(operation.status().ok());
  EXPECT_TRUE(operation.outputs().empty());
  EXPECT_TRUE(operation.sleep_until_done(std::nullopt));
}

TEST(Operation, KeepsItsStatusAndOutputs) {
  Operation operation;
  std::vector<OutputBuffer> outputs;
  outputs.push_back(allocate_output(24, {2, 3}));
  const std::byte* data = outputs.front().data.get();
  operation.set_outputs(std::move(outputs));
  operation.complete(Status::mismatch("no"));
  EXPECT_EQ(operation.status().kind(), ErrorKind::kMismatch);
  EXPECT_EQ(operation.status().message(), "no");
  ASSERT_EQ(operation.outputs().size(), 1U);
  EXPECT_EQ(operation.outputs().front().data.get(), data);
  EXPECT_EQ(operation.outputs().front().shape, (std::vector<std::int64_t>{2, 3}));
}

TEST(Operation, CallsBackOnceAfterItIsDone) {
  int n_calls = 0;
  Operation operation;
  operation.when_done([&n_calls](const Operation& done) {
    ++n_calls;
    EXPECT_TRUE(done.is_done());
    EXPECT_EQ(done.status().message(), "late");
  });
  EXPECT_EQ(n_calls, 0);
  operation.complete(Status::timeout("late"));
  EXPECT_EQ(n_calls, 1);
}

TEST(Operation, CallsBackOnTheCompletingThread) {
  std::thread::id called_on;
  Operation operation;
  operation.when_done([&called_on](const Operation&) { called_on = std::this_thread::get_id(); });
  std::thread completer([&operation] { operation.complete(Status::ok_status()); });
  const std::thread::id completer_id = completer.get_id();
  completer.join();
  EXPECT_EQ(called_on, completer_id);
}

// A callback may drop what it holds, and must not be kept alive by a finished operation.
TEST(Operation, LetsItsCallbackGo) {
  auto held = std::make_shared<int>(1);
  Operation operation;
  operation.when_done([held](const Operation&) {});
  EXPECT_EQ(held.use_count(), 2);
  operation.complete(Status::ok_status());
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Operation, CallsBackAtOnceWhereItIsDone) {
  Operation operation;
  operation.complete(Status::aborted("before"));
  std::thread::id called_on;
  operation.when_done([&called_on](const Operation& done) {
    EXPECT_EQ(done.status().message(), "before");
    called_on = std::this_thread::get_id();
  });
  EXPECT_EQ(called_on, std::this_thread::get_id());
}

// Whatever the order in which threads ask and another completes, each is called back once.
TEST(Operation, CallsBackEverybodyOnce) {
  for (int i = 0; i < 500; ++i) {
    constexpr int kThreads = 3;
    Operation operation;
    std::atomic<int> n_calls{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < kThreads; ++k) {
      threads.emplace_back([&] {
        for (int n = 0; n < 4; ++n) {
          operation.when_done([&n_calls](const Operation& done) {
            EXPECT_TRUE(done.is_done());
            ++n_calls;
          });
        }
      });
    }
    operation.complete(Status::ok_status());
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_calls.load(), 4 * kThreads);
  }
}

// A sleeper goes on sleeping, or at least comes back, when somebody asks to be called.
TEST(Operation, CallsBackAndWakesWhoeverSleeps) {
  Operation operation;
  std::atomic<bool> is_called{false};
  std::thread sleeper([&operation] {
    while (!operation.sleep_until_done(std::nullopt)) {
    }
  });
  operation.when_done([&is_called](const Operation&) { is_called = true; });
  operation.complete(Status::ok_status());
  sleeper.join();
  EXPECT_TRUE(is_called.load());
}

// --- sleeping

TEST(Sleeping, EndsWhenAnotherThreadCompletes) {
  Operation operation;
  Sleeper sleeper(operation, std::nullopt);
  sleeper.wait_until_asleep();
  operation.complete(Status::ok_status());
  EXPECT_TRUE(sleeper.result());
}

TEST(Sleeping, WithATimeEndsWhenAnotherThreadCompletes) {
  Operation operation;
  const auto start = steady_clock::now();
  Sleeper sleeper(operation, kForever);
  sleeper.wait_until_asleep();
  operation.complete(Status::ok_status());
  EXPECT_TRUE(sleeper.result());
  EXPECT_LT(steady_clock::now() - start, kForever);
}

TEST(Sleeping, EndsForEverySleeper) {
  Operation operation;
  std::vector<std::unique_ptr<Sleeper>> sleepers;
  for (int i = 0; i < 4; ++i) sleepers.push_back(std::make_unique<Sleeper>(operation, std::nullopt));
  for (const auto& sleeper : sleepers) sleeper->wait_until_asleep();
  operation.complete(Status::ok_status());
  for (const auto& sleeper : sleepers) EXPECT_TRUE(sleeper->result());
}

TEST(Sleeping, ShowsTheStatusAndOutputsToTheSleeper) {
  Operation operation;
  std::thread completer([&operation] {
    std::vector<OutputBuffer> outputs;
    outputs.push_back(allocate_output(4, {4}));
    outputs.front().data.get()[3] = std::byte{42};
    operation.set_outputs(std::move(outputs));
    operation.complete(Status::aborted("down"));
  });
  while (!operation.sleep_until_done(std::nullopt)) {
  }
  EXPECT_EQ(operation.status().message(), "down");
  EXPECT_EQ(operation.outputs().front().data.get()[3], std::byte{42});
  completer.join();
}

// Whatever the order in which two threads sleep and complete, no wake-up is lost.
TEST(Sleeping, NeverMissesACompletion) {
  for (int i = 0; i < 2000; ++i) {
    Operation operation;
    std::thread completer([&operation] { operation.complete(Status::ok_status()); });
    while (!operation.sleep_until_done(std::nullopt)) {
    }
    completer.join();
  }
}

TEST(Sleeping, EndsUndoneAfterTheTimeGiven) {
  const Operation operation;
  const auto start = steady_clock::now();
  EXPECT_FALSE(operation.sleep_until_done(milliseconds(20)));
  EXPECT_GE(steady_clock::now() - start, milliseconds(20));
}

TEST(Sleeping, ForNoTimeOrLessLooksOnly) {
  const Operation operation;
  EXPECT_FALSE(operation.sleep_until_done(nanoseconds(0)));
  EXPECT_FALSE(operation.sleep_until_done(nanoseconds(-1)));
  EXPECT_FALSE(operation.sleep_until_done(std::chrono::seconds(-2)));
}

TEST(Sleeping, CanBeRepeatedAfterTheTimeGiven) {
  Operation operation;
  EXPECT_FALSE(operation.sleep_until_done(nanoseconds(1)));
  Sleeper sleeper(operation, std::nullopt);
  sleeper.wait_until_asleep();
  operation.complete(Status::ok_status());
  EXPECT_TRUE(sleeper.result());
}

TEST(Sleeping, EndsUndoneBySignal) {
  const InterruptingSignal signal;
  Operation operation;
  for (const auto& at_most : {std::optional<nanoseconds>(), std::optional<nanoseconds>(kForever)}) {
    Sleeper sleeper(operation, at_most);
    sleeper.wait_until_asleep();
    sleeper.interrupt();
    EXPECT_FALSE(sleeper.result());
  }
  operation.complete(Status::ok_status());
}

TEST(Sleeping, OfOthersGoesOnWhenASignalEndsOne) {
  const InterruptingSignal signal;
  Operation operation;
  Sleeper first(operation, std::nullopt);
  Sleeper second(operation, std::nullopt);
  first.wait_until_asleep();
  second.wait_until_asleep();
  first.interrupt();
  EXPECT_FALSE(first.result());
  operation.complete(Status::ok_status());
  EXPECT_TRUE(second.result());
}

}  // namespace
}  // namespace ciranda
