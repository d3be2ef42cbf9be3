#include "progress/short_slices.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>

namespace ciranda {
namespace {

TEST(ShortSlices, LeaveTheShareOfTheProcessorAsItIs) {
  std::thread([] {
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
    const int nice = getpriority(PRIO_PROCESS, 0);
    take_short_slices();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

TEST(ShortSlices, AreForTheOrdinaryPolicyAlone) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    take_short_slices();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace ciranda
