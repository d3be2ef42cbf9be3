#include "base/crc32c.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace ciranda {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  const auto of = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62A8AB43U);
}

TEST(Crc32c, IsTheSameByTablesAndInParts) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(20'000);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 1024U, 3071U, 3072U, 3073U, 6144U, 19'990U}) {
    for (const std::size_t begin : {0U, 1U, 5U}) {
      const auto some = std::span<const std::byte>(bytes).subspan(begin, size);
      EXPECT_EQ(crc32c(some), detail::crc32c_by_tables(some, 0)) << size << " from " << begin;
      EXPECT_EQ(crc32c(some), crc32c(some.subspan(size / 3), crc32c(some.first(size / 3)))) << size;
    }
  }
}

}  // namespace
}  // namespace ciranda
