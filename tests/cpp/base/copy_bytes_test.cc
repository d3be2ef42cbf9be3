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
void by(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  copy_by(technique, to, from, n_bytes);
}
template <ReadLast read_last>
void over(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  copy_for_others(to, from, n_bytes, read_last);
}
// A trial at every copy that may be one.
void in_trial(std::byte* to, const std::byte* from, std::size_t n_bytes) {
  staging_choice().prescribe(std::nullopt);
  copy_for_others(to, from, n_bytes, ReadLast::kElsewhere);
}
constexpr std::array<Copy, 6> kCopies{&copy_bytes,
                                      &by<StagingCopy::kCached>,
                                      &by<StagingCopy::kPastCaches>,
                                      &over<ReadLast::kHere>,
                                      &over<ReadLast::kElsewhere>,
                                      &in_trial};

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
  for (std::size_t beside = 0; beside <= 260; ++beside) sizes.push_back(kLeastStagingBytes - 130 + beside);
  for (const std::size_t n_bytes : sizes) {
    for (const std::size_t from_offset : {0U, 1U, 16U, 33U}) {
      for (const std::size_t to_offset : {0U, 3U, 32U}) {
        for (const Copy copy : kCopies) expect_copied(copy, n_bytes, from_offset, to_offset);
      }
    }
  }
}

// A byte that were read or written there would end the process.
TEST(CopyBytes, OfNothingNeedsNoMemory) {
  for (const Copy copy : kCopies) {
    EXPECT_EXIT(
        {
          copy(nullptr, nullptr, 0);
          _exit(0);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST(CopyBytes, OverLinesThatOthersHaveReadACopyInManyIsATrial) {
  std::vector<std::byte> memory(1 << 16);
  const auto copy = [&](std::size_t n_bytes) {
    copy_for_others(memory.data(), memory.data() + memory.size() / 2, n_bytes, ReadLast::kElsewhere);
  };
  StagingChoice& choice = staging_choice();
  choice.prescribe(std::nullopt);
  copy(1000);  // too little to be timed
  EXPECT_TRUE(choice.is_trial_due());
  choice.prescribe(std::nullopt);
  copy(memory.size() / 2);
  copy(memory.size() / 2);  // where the first spoke against the technique in use
  EXPECT_FALSE(choice.is_trial_due());
}

}  // namespace
}  // namespace ciranda
