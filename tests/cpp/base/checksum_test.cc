// That the checksum differs where the memory does, and that those of blocks are all that it needs.
#include "base/checksum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

TEST(Checksum, DiffersWhereverABitDoes) {
  for (const std::size_t n_bytes : {1U, 7U, 8U, 31U, 32U, 33U, 100U, 1024U, 1025U, 2100U}) {
    std::vector<std::byte> bytes(n_bytes, std::byte{0});
    const std::uint64_t sum = checksum(bytes);
    EXPECT_NE(sum, checksum(std::span(bytes).first(n_bytes - 1)));
    EXPECT_NE(sum, checksum(bytes, 1));
    for (std::size_t bit = 0; bit < 8 * n_bytes; ++bit) {
      const auto mask = static_cast<std::byte>(1U << bit % 8);
      bytes[bit / 8] ^= mask;
      EXPECT_NE(checksum(bytes), sum) << bit << " of " << n_bytes;
      bytes[bit / 8] ^= mask;
    }
  }
}

TEST(Checksum, DiffersWhenPartsChangePlaces) {
  constexpr std::size_t kWords = 3 * kChecksumBlockBytes / sizeof(std::uint64_t) + 9;
  std::vector<std::uint64_t> words(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = i + 1;
  const std::uint64_t sum = checksum(std::as_bytes(std::span(words)));
  for (std::size_t i = 1; i < kWords; ++i) {
    std::swap(words[0], words[i]);
    EXPECT_NE(checksum(std::as_bytes(std::span(words))), sum) << i;
    std::swap(words[0], words[i]);
  }
}

TEST(Checksum, DiffersWhenBlocksChangePlaces) {
  std::vector<std::byte> bytes(3 * kChecksumBlockBytes);
  const std::span all(bytes);
  std::fill_n(bytes.begin(), kChecksumBlockBytes, std::byte{1});
  const std::uint64_t sum = checksum(bytes);
  for (const std::size_t other : {1U, 2U}) {
    const auto first = all.first(kChecksumBlockBytes);
    const auto second = all.subspan(other * kChecksumBlockBytes, kChecksumBlockBytes);
    std::swap_ranges(first.begin(), first.end(), second.begin());
    EXPECT_NE(checksum(bytes), sum) << other;
    std::swap_ranges(first.begin(), first.end(), second.begin());
  }
}

}  // namespace
}  // namespace ciranda
