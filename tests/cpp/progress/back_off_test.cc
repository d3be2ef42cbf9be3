#include "progress/back_off.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ciranda {
namespace {

cpu_set_t usable_cores() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  EXPECT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  return usable;
}

// A thread that does nothing but give way to others, every so often, on one core for as long as it lives.
class CompanyOn {
 public:
  CompanyOn(int core, std::chrono::microseconds turn)
      : thread_([this, core, turn] {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(static_cast<unsigned>(core), &one);
          sched_setaffinity(0, sizeof one, &one);
          while (!is_over_.load()) {
            const auto until = std::chrono::steady_clock::now() + turn;
            while (std::chrono::steady_clock::now() < until && !is_over_.load()) {
            }
            sched_yield();
          }
        }) {}
  ~CompanyOn() {
    is_over_.store(true);
    thread_.join();
  }
  CompanyOn(const CompanyOn&) = delete;
  CompanyOn& operator=(const CompanyOn&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(BackOff, ThatStepsAsideMayRunWhereItMightBefore) {
  const cpu_set_t before = usable_cores();
  CoreSharing sharing(0);
  {
    const CompanyOn company(sched_getcpu(), std::chrono::microseconds(20));
    for (int wait = 0; wait < 200; ++wait) {  // each too short to tell by itself that the core is shared
      BackOff back_off(std::chrono::microseconds(100), false, sharing);
      while (back_off.look_again()) {
      }
    }
  }
  const cpu_set_t after = usable_cores();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// The core on which this thread is, alone, for as long as this lives.
class OnOneCore {
 public:
  OnOneCore() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(core), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

  const int core = sched_getcpu();

 private:
  const cpu_set_t before_ = usable_cores();
};

// How often it looks until it gives up.
int n_looks_of(std::chrono::microseconds limit, CoreSharing& sharing) {
  BackOff back_off(limit, false, sharing);
  int n_looks = 1;
  while (back_off.look_again()) ++n_looks;
  return n_looks;
}

// Beside a thread that never gives way a yield lasts for a slice of the scheduler's. After one that did, waits end
// where they would yield, for some time.
TEST(BackOff, SleepsInsteadOfYieldingBesideOtherWork) {
  constexpr auto kLimit = std::chrono::microseconds(200);
  constexpr int kLooksBeforeYield = 50;
  const OnOneCore here;
  CoreSharing sharing(0);
  const CompanyOn company(here.core, std::chrono::hours(1));
  for (int wait = 0; wait < 1000 && sharing.no_yield_before.load() == CoreSharing::Clock::time_point::min(); ++wait) {
    n_looks_of(kLimit, sharing);
  }
  ASSERT_NE(sharing.no_yield_before.load(), CoreSharing::Clock::time_point::min());
  sharing.no_yield_before = CoreSharing::Clock::time_point::max();  // however long the next waits have no core
  for (int wait = 0; wait < 10; ++wait) EXPECT_EQ(n_looks_of(kLimit, sharing), kLooksBeforeYield);
}

TEST(BackOff, OfTwoRanksOneStepsAsideFirst) {
  EXPECT_NE(CoreSharing(0).n_yields_before_step_aside, CoreSharing(1).n_yields_before_step_aside);
}

TEST(BackOff, EndsWhenNothingMovesForItsTime) {
  CoreSharing sharing(0);
  BackOff back_off(std::chrono::milliseconds(1), false, sharing);
  const auto began = std::chrono::steady_clock::now();
  while (back_off.look_again()) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace ciranda
