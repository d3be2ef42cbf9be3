// CallbackThreads: every callback runs once, whatever the others do; threads come when they are needed and go when not.
#include "call/callback_threads.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "call/callbacks.hpp"

namespace ciranda {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Of this process. A thread that was joined may be among them for a moment.
int n_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

void post(CallbackThreads& threads, CallbackThreads::Callback callback) {
  threads.post(std::move(callback));
  threads.flush();
}

TEST(CallbackThreads, RunEachOnceInTheOrderInWhichTheyBegin) {
  constexpr int kCallbacks = 500;
  std::mutex mutex;
  std::vector<int> begun;
  std::set<std::thread::id> ran_on;
  {
    CallbackThreads threads;
    for (int i = 0; i < kCallbacks; ++i) {
      threads.post([&, i] {
        const std::lock_guard lock(mutex);
        begun.push_back(i);
        ran_on.insert(std::this_thread::get_id());
      });
      if (i % 7 == 0) threads.flush();
    }
    threads.flush();
  }
  EXPECT_FALSE(ran_on.contains(std::this_thread::get_id()));
  EXPECT_EQ(std::set(begun.begin(), begun.end()).size(), static_cast<std::size_t>(kCallbacks));
  EXPECT_EQ(begun.size(), static_cast<std::size_t>(kCallbacks));
}

TEST(CallbackThreads, ThereAreNoneWithoutCallbacks) {
  const int before = n_threads();
  CallbackThreads threads;
  threads.flush();
  EXPECT_LE(n_threads(), before);
}

TEST(CallbackThreads, EndWhenThereIsNothingForAWhile) {
  const int before = n_threads();
  CallbackThreads threads(milliseconds(1));
  std::latch all_run(10);
  for (int i = 0; i < 10; ++i) post(threads, [&] { all_run.arrive_and_wait(); });
  EXPECT_GE(n_threads(), before + 1);
  all_run.wait();
  while (n_threads() > before) std::this_thread::yield();
  std::latch again(1);
  post(threads, [&] { again.count_down(); });
  again.wait();
}

TEST(CallbackThreads, OneDoesForCallbacksThatComeOneByOne) {
  CallbackThreads threads(hours(1));
  const int before = n_threads();
  for (int i = 0; i < 100; ++i) {
    std::latch has_run(1);
    post(threads, [&] { has_run.count_down(); });
    has_run.wait();
    while (!threads.are_idle()) std::this_thread::yield();  // until the thread is back at the queue
  }
  EXPECT_LE(n_threads(), before + 1);
}

// Many that come at once are no reason for many threads, if none takes its time; a thread may be held up by the
// machine.
TEST(CallbackThreads, FewDoForManyQuickCallbacks) {
  constexpr int kCallbacks = 5000;
  CallbackThreads threads(hours(1));
  const int before = n_threads();
  std::latch all_run(kCallbacks);
  for (int i = 0; i < kCallbacks; ++i) threads.post([&] { all_run.count_down(); });
  threads.flush();
  all_run.wait();
  EXPECT_LE(n_threads(), before + 20);
}

// Each waits for the next: as many threads as callbacks, all posted at once.
TEST(CallbackThreads, ThoseThatWaitForLaterOnesHoldUpNothing) {
  constexpr int kCallbacks = 64;
  std::vector<std::unique_ptr<std::latch>> have_begun;
  for (int i = 0; i < kCallbacks + 1; ++i) have_begun.push_back(std::make_unique<std::latch>(1));
  CallbackThreads threads;
  for (std::size_t i = 0; i < kCallbacks; ++i) {
    threads.post([&, i] {
      have_begun[i]->count_down();
      have_begun[i + 1]->wait();
    });
  }
  threads.flush();
  have_begun[kCallbacks - 1]->wait();
  have_begun[kCallbacks]->count_down();
  threads.finish();
}

// Each posts the next and waits for it.
TEST(CallbackThreads, TheyMayWaitForWhatTheyPost) {
  CallbackThreads threads;
  int n_nested = 0;
  const std::function<void()> nest = [&] {
    if (++n_nested == 40) return;
    std::latch is_done(1);
    post(threads, [&] {
      nest();
      is_done.count_down();
    });
    is_done.wait();
  };
  post(threads, nest);
  threads.finish();
  EXPECT_EQ(n_nested, 40);
}

TEST(CallbackThreads, FinishingRunsWhatIsQueuedAndWhatThatPosts) {
  const int before = n_threads();
  CallbackThreads threads;
  std::atomic<int> n_run{0};
  for (int i = 0; i < 20; ++i) {
    threads.post([&] {
      std::this_thread::sleep_for(milliseconds(1));
      threads.post([&] { ++n_run; });
      threads.flush();
      ++n_run;
    });
  }
  threads.finish();
  EXPECT_EQ(n_run, 40);
  while (n_threads() > before) std::this_thread::yield();
  post(threads, [&] { ++n_run; });  // afterwards too
  threads.finish();
  EXPECT_EQ(n_run, 41);
}

TEST(CallbackThreads, ACallbackMayFinishAndEndTheObject) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> n_run{0};
    std::latch has_ended(1);
    auto threads = std::make_unique<CallbackThreads>();
    for (int k = 0; k < 3; ++k) threads->post([&] { ++n_run; });
    CallbackThreads& posts = *threads;
    posts.post([&] {
      threads.reset();
      EXPECT_EQ(n_run, 3);
      has_ended.count_down();
    });
    posts.flush();
    has_ended.wait();
  }
}

TEST(CallbackThreads, SeveralMayFinishAtOnce) {
  for (int i = 0; i < 200; ++i) {
    CallbackThreads threads;
    std::latch both(2);
    for (int k = 0; k < 2; ++k) {
      threads.post([&] {
        both.arrive_and_wait();
        threads.finish();
      });
    }
    threads.finish();
  }
}

TEST(CallbackThreads, LetCallbacksGoOnceTheyHaveRun) {
  auto held = std::make_shared<int>(1);
  CallbackThreads threads;
  threads.post([held] {});
  threads.finish();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(CallbackThreads, WhatIsThrownIsToldAndGoesNoFurther) {
  ::testing::internal::CaptureStderr();
  CallbackThreads threads;
  std::atomic<int> n_run{0};
  threads.post([] { throw std::runtime_error("a mishap"); });
  threads.post([] { throw 1; });
  threads.post([&] { ++n_run; });
  threads.finish();
  EXPECT_EQ(n_run, 1);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("a completion callback threw a mishap"), std::string::npos) << told;
  EXPECT_NE(told.find("something that is no std::exception"), std::string::npos) << told;
}

TEST(CallbackThreads, GetNoSignalsButTheirOwnFaults) {
  sigset_t blocked;
  sigemptyset(&blocked);
  CallbackThreads threads;
  threads.post([&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); });
  threads.finish();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
  EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
}

// Threads that would need more memory than there is cannot be made.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes = before_;
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 50);
    pthread_setattr_default_np(&attributes);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(CallbackThreads, WithoutAThreadTheyRunDirectly) {
  CallbackThreads threads;
  std::thread::id ran_on;
  Status may_wait;
  {
    const NoThreads none;
    ::testing::internal::CaptureStderr();
    post(threads, [&] {
      ran_on = std::this_thread::get_id();
      may_wait = DirectCallback::refuse("wait");
    });
    EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
  }
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(may_wait.kind(), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace ciranda
