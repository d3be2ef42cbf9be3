#include "base/copy_bytes.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace ciranda {
namespace {

constexpr std::byte kUntouched{0xEE};
constexpr std::size_t kMargin = 64;

using Copy = void (*)(std::byte*, const std::byte*, std::size_t);

template <StagingCopy technique>
void copy_by(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  copy_for_others(to, from, n_bytes, technique);
}
constexpr std::array<Copy, 2> kTechniques{&copy_by<StagingCopy::kCached>, &copy_by<StagingCopy::kPastCaches>};

void expect_copied(Copy copy, std::size_t n_bytes, std::size_t from_offset, std::size_t to_offset) {
  std::vector<std::byte> from(n_bytes + from_offset);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
  std::vector<std::byte> to(kMargin + to_offset + n_bytes + kMargin, kUntouched);
  std::byte* target = to.data() + kMargin + to_offset;
  copy(target, from.data() + from_offset, n_bytes);
  const auto is_untouched = [](std::byte each) { return each == kUntouched; };
  EXPECT_TRUE(std::equal(target, target + n_bytes, from.data() + from_offset)) << n_bytes;
  EXPECT_TRUE(std::all_of(to.data(), target, is_untouched)) << n_bytes;
  EXPECT_TRUE(std::all_of(target + n_bytes, to.data() + to.size(), is_untouched)) << n_bytes;
}

TEST(CopyBytes, CopiesThatManyBytesWhereverTheyLie) {
  std::vector<std::size_t> sizes{0, 1, 63, 64, 65, 127, 128, 100'003, std::size_t{1} << 20};
  for (std::size_t beside = 0; beside <= 260; ++beside) sizes.push_back(kCopyByVectorsFrom - 130 + beside);
  for (const std::size_t n_bytes : sizes) {
    for (const std::size_t from_offset : {0U, 1U, 16U, 33U}) {
      for (const std::size_t to_offset : {0U, 3U, 32U}) {
        expect_copied(copy_bytes, n_bytes, from_offset, to_offset);
        for (const Copy copy : kTechniques) expect_copied(copy, n_bytes, from_offset, to_offset);
      }
    }
  }
}

// A byte that were read or written there would end the process.
TEST(CopyBytes, OfNothingNeedsNoMemory) {
  for (const Copy copy : {Copy{&copy_bytes}, kTechniques[0], kTechniques[1]}) {
    EXPECT_EXIT(
        {
          copy(nullptr, nullptr, 0);
          _exit(0);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST(CopyBytes, StagingBuffersAreWrittenThroughTheCachesUntilAnotherTechniqueIsSet) {
  EXPECT_EQ(staging_copy(), StagingCopy::kCached);
  for (const StagingCopy technique : {StagingCopy::kPastCaches, StagingCopy::kCached}) {
    set_staging_copy(technique);
    EXPECT_EQ(staging_copy(), technique);
    EXPECT_EQ(staging_copy_named(to_string(technique)), technique);
  }
  EXPECT_EQ(staging_copy_named(""), std::nullopt);
}

}  // namespace
}  // namespace ciranda
