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

// A thread that does nothing but give way to others, on one core for as long as it lives.
class CompanyOn {
 public:
  explicit CompanyOn(int core)
      : thread_([this, core] {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(static_cast<unsigned>(core), &one);
          sched_setaffinity(0, sizeof one, &one);
          while (!is_over_.load()) {
            const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
            while (std::chrono::steady_clock::now() < until) {
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
    const CompanyOn company(sched_getcpu());
    for (int wait = 0; wait < 200; ++wait) {  // each too short to tell by itself that the core is shared
      BackOff back_off(std::chrono::microseconds(100), false, sharing);
      while (back_off.look_again()) {
      }
    }
  }
  const cpu_set_t after = usable_cores();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
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
