#include "base/fill_random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace ciranda {
namespace {

TEST(FillRandom, IsAnotherEachTime) {
  using Bytes = std::array<std::byte, 32>;
  Bytes first{};
  Bytes second{};
  ASSERT_TRUE(fill_random(first).ok());
  ASSERT_TRUE(fill_random(second).ok());
  EXPECT_NE(first, second);
  EXPECT_NE(first, Bytes{});
}

}  // namespace
}  // namespace ciranda
