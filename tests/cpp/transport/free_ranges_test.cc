// FreeRanges, compared with a list of all bytes.
#include "transport/free_ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

TEST(FreeRanges, GiveTheSmallestThatHasRoom) {
  FreeRanges ranges(1000);
  EXPECT_EQ(ranges.take(300, 1), 0U);
  EXPECT_EQ(ranges.take(100, 1), 300U);
  EXPECT_EQ(ranges.take(200, 1), 400U);
  ranges.give_back(0, 300);
  ranges.give_back(400, 200);  // next to the 400 bytes at the end
  EXPECT_EQ(ranges.take(250, 1), 0U);
  EXPECT_EQ(ranges.take(600, 1), 400U);
  EXPECT_FALSE(ranges.take(51, 1));
  EXPECT_EQ(ranges.take(50, 1), 250U);
  EXPECT_FALSE(ranges.are_all_free());
  ranges.give_back(0, 300);
  ranges.give_back(400, 600);
  ranges.give_back(300, 100);
  EXPECT_TRUE(ranges.are_all_free());
  EXPECT_EQ(ranges.take(1000, 1), 0U);
}

TEST(FreeRanges, KeepToTheAlignment) {
  FreeRanges ranges(1024);
  EXPECT_EQ(ranges.take(10, 1), 0U);
  EXPECT_EQ(ranges.take(100, 512), 512U);
  EXPECT_EQ(ranges.take(400, 4), 612U);
  EXPECT_EQ(ranges.take(502, 2), 10U);
  EXPECT_FALSE(ranges.take(16, 1024));
}

TEST(FreeRanges, AreNeverGivenOutTwiceNorLost) {
  constexpr std::size_t kBytes = 512;
  std::mt19937_64 random(1);
  FreeRanges ranges(kBytes);
  std::vector<bool> is_taken(kBytes, false);
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [offset, n_bytes] = taken.back();
      taken.pop_back();
      ranges.give_back(offset, n_bytes);
      std::fill_n(is_taken.begin() + static_cast<std::ptrdiff_t>(offset), n_bytes, false);
      continue;
    }
    const std::size_t n_bytes = 1 + random() % 60;
    const std::size_t alignment = std::size_t{1} << random() % 5;
    const auto is_free_at = [&](std::size_t offset) {
      const auto begin = is_taken.begin() + static_cast<std::ptrdiff_t>(offset);
      return offset % alignment == 0 && offset + n_bytes <= kBytes &&
             std::none_of(begin, begin + static_cast<std::ptrdiff_t>(n_bytes), [](bool is) { return is; });
    };
    const auto offset = ranges.take(n_bytes, alignment);
    if (!offset) {
      for (std::size_t at = 0; at < kBytes; ++at) ASSERT_FALSE(is_free_at(at)) << "there was room";
      continue;
    }
    ASSERT_TRUE(is_free_at(*offset));
    std::fill_n(is_taken.begin() + static_cast<std::ptrdiff_t>(*offset), n_bytes, true);
    taken.emplace_back(*offset, n_bytes);
  }
  for (const auto& [offset, n_bytes] : taken) ranges.give_back(offset, n_bytes);
  EXPECT_TRUE(ranges.are_all_free());
  EXPECT_EQ(ranges.take(kBytes, 1), 0U);
}

}  // namespace
}  // namespace ciranda
