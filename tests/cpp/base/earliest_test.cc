#include "base/earliest.hpp"

#include <gtest/gtest.h>

namespace ciranda {
namespace {

TEST(Earliest, IsTheFirstOfThoseThatAre) {
  const std::optional<int> none;
  EXPECT_EQ(earliest(none, std::nullopt), std::nullopt);
  EXPECT_EQ(earliest(none, 3), 3);
  EXPECT_EQ(earliest(std::optional(3), none), 3);
  EXPECT_EQ(earliest(std::optional(3), 4), 3);
  EXPECT_EQ(earliest(std::optional(4), 3), 3);
}

}  // namespace
}  // namespace ciranda
