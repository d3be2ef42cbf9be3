// SharedRegions: what becomes of memory that is needed no more, and of what others have mapped when they are not to be
// trusted with it any longer. Another mapping of the same segment stands for another process.
#include "transport/shared_regions.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace ciranda {
namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Region {
  std::shared_ptr<ShmSegment> segment;
  std::uint64_t number;
};

Region add(SharedRegions& regions, std::size_t n_bytes) {
  auto segment = std::make_shared<ShmSegment>(ShmSegment::create(n_bytes).value());
  const std::uint64_t number = regions.add_own(segment);
  regions.use(number);
  return {segment, number};
}

std::size_t allocated_bytes(const UniqueFd& file) {
  struct stat info {};
  EXPECT_EQ(fstat(file.get(), &info), 0);
  return static_cast<std::size_t>(info.st_blocks) * 512;
}

TEST(SharedRegions, GiveOutPlacesOfAnySize) {
  SharedRegions regions;
  EXPECT_FALSE(regions.take(1));
  const Region region = add(regions, kMiB);
  std::vector<RegionRange> ranges;
  for (const std::size_t n_bytes : {0U, 1U, 5000U, 300'000U, 40U}) {
    const auto range = regions.take(n_bytes);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->n_bytes, n_bytes);
    for (const RegionRange& other : ranges) {
      EXPECT_TRUE(range->offset >= other.offset + std::max<std::size_t>(other.n_bytes, 1) ||
                  other.offset >= range->offset + std::max<std::size_t>(n_bytes, 1));
    }
    ranges.push_back(*range);
  }
  EXPECT_FALSE(regions.take(kMiB));
  for (const RegionRange& range : ranges) regions.give_back(range);
  EXPECT_TRUE(regions.take(kMiB));
}

TEST(SharedRegions, DropWhatIsMoreThanToBeKept) {
  SharedRegions regions;
  constexpr std::size_t kSize = SharedRegions::kMostKept / 2 + kMiB;
  std::vector<RegionRange> ranges;
  std::vector<UniqueFd> files;
  for (int i = 0; i < 2; ++i) {
    // Not all of it is allocated: that would be much.
    auto segment =
        std::make_shared<ShmSegment>(ShmSegment::create_part(kSize, std::array{ShmExtent{0, 4 * kMiB}}).value());
    files.emplace_back(dup(segment->descriptor()));
    regions.use(regions.add_own(std::move(segment)));
    ranges.push_back(*regions.take(kSize));
  }
  regions.give_back(ranges[0]);
  EXPECT_TRUE(regions.take_dropped(9).empty());
  EXPECT_GE(allocated_bytes(files[0]), 4 * kMiB);
  regions.give_back(ranges[1]);
  EXPECT_EQ(regions.take_dropped(9), std::vector<std::uint64_t>{ranges[1].region});
  EXPECT_TRUE(regions.take_dropped(9).empty());
  EXPECT_EQ(allocated_bytes(files[1]), 0U) << "though somebody has it still";
  EXPECT_EQ(regions.n_own_bytes(), kSize);
  regions.drop_kept();
  EXPECT_EQ(regions.take_dropped(9), std::vector<std::uint64_t>{ranges[0].region});
  EXPECT_EQ(regions.n_own_bytes(), 0U);
  EXPECT_FALSE(regions.take(1));
}

TEST(SharedRegions, ForgetWhatAnotherHasDropped) {
  SharedRegions regions;
  const auto theirs = ShmSegment::create(4096);
  regions.add_peer(1, 7, ShmSegment::open(theirs.value().path(), 4096).value());
  EXPECT_EQ(regions.memory(1, {7, 0, 4096}).size(), 4096U);
  regions.forget_peer(1, 7);
  EXPECT_TRUE(regions.memory(1, {7, 0, 1}).empty());
}

TEST(SharedRegions, MadePrivateAreOutOfReachAtTheSameAddress) {
  SharedRegions regions;
  const Region region = add(regions, 8 * kMiB);
  const auto theirs = ShmSegment::open(region.segment->path(), 8 * kMiB);
  region.segment->release_name();
  const RegionRange range = *regions.take(5 * kMiB);
  const std::span<std::byte> mine = region.segment->memory();
  const std::byte* data = mine.data();
  std::memset(mine.data(), 1, mine.size());
  ASSERT_TRUE(regions.find(data, 100));
  ASSERT_TRUE(regions.make_private().ok());
  EXPECT_EQ(region.segment->memory().data(), data);
  EXPECT_FALSE(regions.find(data, 100)) << "others do not see it any longer";
  EXPECT_FALSE(regions.take(1));

  std::memset(theirs.value().memory().data(), 2, mine.size());
  EXPECT_TRUE(std::all_of(mine.begin(), mine.end(), [](std::byte byte) { return byte == std::byte{1}; }));
  std::memset(mine.data(), 3, mine.size());
  EXPECT_EQ(theirs.value().memory()[0], std::byte{2});
  EXPECT_TRUE(regions.make_private().ok()) << "once more";
  regions.give_back(range);
  EXPECT_EQ(*mine.data(), std::byte{3});
}

// Every count of a thread must be there in the end, and every look must find what was written.
TEST(SharedRegions, MadePrivateLoseNothingThatIsWrittenMeanwhile) {
  for (int round = 0; round < 20; ++round) {
    SharedRegions regions;
    const Region region = add(regions, 4 * kMiB);
    region.segment->release_name();
    ASSERT_TRUE(regions.take(4 * kMiB));
    const auto* values = reinterpret_cast<std::uint64_t*>(region.segment->memory().data());
    constexpr std::size_t kStride = 512;  // a page
    constexpr std::size_t kPages = 4 * kMiB / 4096;
    std::atomic<bool> is_over{false};
    std::atomic<std::uint64_t> n_rounds{0};
    std::thread counter([&] {
      while (!is_over.load()) {
        for (std::size_t page = 0; page < kPages; ++page) {
          volatile std::uint64_t& value = const_cast<std::uint64_t*>(values)[page * kStride];
          value = value + 1;
        }
        n_rounds.fetch_add(1);
      }
    });
    while (n_rounds.load() < 2) std::this_thread::yield();
    EXPECT_TRUE(regions.make_private().ok());
    const std::uint64_t before = n_rounds.load();
    while (n_rounds.load() < before + 2) std::this_thread::yield();
    is_over.store(true);
    counter.join();
    for (std::size_t page = 0; page < kPages; ++page) ASSERT_EQ(values[page * kStride], n_rounds.load()) << page;
  }
}

}  // namespace
}  // namespace ciranda
