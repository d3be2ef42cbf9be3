// That threads are known to sleep only where nobody but this process can wake them, and only as long as nobody has.
#include "capi/sleepers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace ciranda::capi {
namespace {

using namespace std::chrono_literals;

// This thread, as one that waits in the engine while it asks.
bool do_sleep(bool may_nap = false) {
  const WaitingThread self{pthread_self(), gettid()};
  return do_others_sleep({&self, 1}, may_nap);
}
bool do_so_still() {
  const WaitingThread self{pthread_self(), gettid()};
  return do_still_sleep({&self, 1});
}

// Whether it is so before long, as a thread needs a moment to fall asleep.
bool comes_true(const std::function<bool()>& is_so, std::chrono::milliseconds within = 30s) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (std::chrono::steady_clock::now() < end) {
    if (is_so()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

// A thread that waits as it is told, until this ends.
class Other {
 public:
  using Lock = std::unique_lock<std::mutex>;
  explicit Other(std::function<void(Other&, Lock&)> wait)
      : thread_([this, wait = std::move(wait)] {
          Lock lock(mutex);
          while (!is_over) wait(*this, lock);
        }) {}
  ~Other() {
    {
      const Lock lock(mutex);
      is_over = true;
    }
    wake.notify_all();
    thread_.join();
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  std::mutex mutex;
  std::condition_variable wake;
  bool is_over = false;

 private:
  std::thread thread_;
};

void sleep_without_end(Other& other, Other::Lock& lock) { other.wake.wait(lock); }

TEST(Sleepers, AreThoseThatOnlyThisProcessWakes) {
  const Other one(sleep_without_end);
  const Other another(sleep_without_end);
  EXPECT_TRUE(comes_true([] { return do_sleep(); }));
  EXPECT_TRUE(do_so_still());
}

TEST(Sleepers, AreNoneThatWakeByThemselves) {
  const Other asleep(sleep_without_end);
  EXPECT_TRUE(comes_true([] { return do_sleep(); }));
  const Other timed([](Other& other, Other::Lock& lock) { other.wake.wait_for(lock, 10s); });
  EXPECT_FALSE(comes_true([] { return do_sleep() && do_so_still(); }, 1s));
}

TEST(Sleepers, AreNoneThatWaitForAnotherProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  std::thread reading([&] {
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), 0);
  });
  EXPECT_FALSE(comes_true([] { return do_sleep() && do_so_still(); }, 1s));
  close(ends[1]);
  reading.join();
  close(ends[0]);
}

TEST(Sleepers, AreNoneOnceTheyHaveRun) {
  Other other(sleep_without_end);
  EXPECT_TRUE(comes_true([] { return do_sleep(); }));
  other.wake.notify_all();
  EXPECT_FALSE(do_so_still() && do_so_still()) << "it runs, or has run";
  EXPECT_TRUE(comes_true([] { return do_sleep() && do_so_still(); })) << "it sleeps again";
}

// As a library's thread that looks at something now and then.
class Napping : public Other {
 public:
  explicit Napping(std::chrono::milliseconds time)
      : Other([time](Other&, Lock& lock) {
          lock.unlock();
          std::this_thread::sleep_for(time);
          lock.lock();
        }) {}
};

TEST(Sleepers, MayNapForLongWhereNothingComesOfIt) {
  const Other asleep(sleep_without_end);
  const Napping napping(2s);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(comes_true([] { return do_sleep(false); }, 1s));
  EXPECT_TRUE(comes_true([] { return do_sleep(true) && do_so_still(); }, 100s));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 30s);
}

TEST(Sleepers, AreNoneThatNapOften) {
  const Other asleep(sleep_without_end);
  const Napping napping(50ms);
  EXPECT_FALSE(comes_true([] { return do_sleep(true); }, 35s));
}

}  // namespace
}  // namespace ciranda::capi
