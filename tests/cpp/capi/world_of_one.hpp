// WorldOfOne: a context of one rank, whatever the environment of the test says.
#pragma once

#include <ciranda/ciranda.h>
#include <gtest/gtest.h>

namespace ciranda::capi {

inline constexpr ciranda_setting kAlone[] = {{"CIRANDA_RANK", "0"}, {"CIRANDA_SIZE", "1"}, {"CIRANDA_HOST", "here"}};

inline ciranda_options alone() {
  ciranda_options options = CIRANDA_OPTIONS_INIT;
  options.settings = kAlone;
  options.settings_count = 3;
  return options;
}

class WorldOfOne : public ::testing::Test {
 protected:
  void SetUp() override {
    char message[512] = "untouched";
    const ciranda_options options = alone();
    ASSERT_EQ(ciranda_init(&options, &world_, message, sizeof(message)), CIRANDA_OK) << message;
    ASSERT_STREQ(message, "");
  }
  void TearDown() override { ciranda_shutdown(world_); }

  // The context before the test's end.
  void leave() {
    ciranda_shutdown(world_);
    world_ = nullptr;
  }

  ciranda_context* world_ = nullptr;
};

}  // namespace ciranda::capi
