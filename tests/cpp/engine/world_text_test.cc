// What the log says of a world.
#include "engine/world_text.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "base/size_text.hpp"

namespace ciranda {
namespace {

TEST(WorldText, NamesTheWayOfEachSize) {
  EXPECT_EQ(ways_text([](std::size_t) { return std::string("a"); }), "an allreduce goes by a");
  const auto way_of = [](std::size_t n_bytes) {
    return std::string(n_bytes <= 1024 ? "a" : n_bytes <= std::size_t{1} << 20U ? "b" : "c");
  };
  EXPECT_EQ(ways_text(way_of), "an allreduce goes by a up to 1 KiB, by b up to 1 MiB, by c above");
}

TEST(WorldText, NamesTheRanksOfASet) { EXPECT_EQ(set_text(7, {0, 2}), "process set 7 was added: ranks 0, 2"); }

TEST(SizeText, IsInTheLargestWholeUnit) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1023), "1023 bytes");
  EXPECT_EQ(size_text(1536), "1536 bytes");
  EXPECT_EQ(size_text(64 << 10), "64 KiB");
  EXPECT_EQ(size_text(std::uint64_t{2048} << 30U), "2048 GiB");
}

}  // namespace
}  // namespace ciranda
