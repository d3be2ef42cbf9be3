#include "transport/bells.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <vector>

#include "no_more_files.hpp"

namespace ciranda {
namespace {

bool has_rung(const Bell& bell) {
  pollfd source{bell.fd(), POLLIN, 0};
  return poll(&source, 1, 0) == 1;
}

TEST(Bells, ManyAreRungThroughFewDescriptors) {
  std::vector<Bell> owned;
  for (std::size_t i = 0; i < Bells::kMostHeld + 3; ++i) owned.push_back(Bell::create().value());
  Bells bells;
  for (int round = 0; round < 2; ++round) {
    for (const Bell& each : owned) {
      EXPECT_TRUE(bells.ring({getpid(), each.fd()}));
      EXPECT_TRUE(has_rung(each));
      each.drain();
    }
    EXPECT_EQ(bells.n_held(), Bells::kMostHeld);
  }
}

#ifndef CIRANDA_SANITIZED  // UBSan needs two descriptors to see whether an object may be read
TEST(Bells, AProcessThatMayOpenNoMoreFilesRingsToo) {
  std::vector<Bell> owned;
  for (std::size_t i = 0; i < 3; ++i) owned.push_back(Bell::create().value());
  Bells bells;
  const NoMoreFiles full;
  for (int round = 0; round < 2; ++round) {
    for (const Bell& each : owned) {
      EXPECT_TRUE(bells.ring({getpid(), each.fd()}));
      EXPECT_TRUE(has_rung(each));
      each.drain();
    }
  }
  EXPECT_EQ(bells.n_held(), 0U);
}
#endif

TEST(Bells, OneThatIsNotThereIsNotRung) {
  Bells bells;
  const Bell one = Bell::create().value();
  EXPECT_TRUE(bells.ring({getpid(), one.fd()}));
  EXPECT_FALSE(bells.ring({getpid(), 1 << 20}));
}

}  // namespace
}  // namespace ciranda
