// ExchangedBuffers: that no two members own a buffer, and that each writes where it has read.
#include "transport/exchanged_buffers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

using Buffer = ExchangedBuffers::Buffer;
using Choice = ExchangedBuffers::Choice;

constexpr std::size_t kSmall = SharedArena::kSmallBufferBytes;
constexpr std::size_t kLarge = SharedArena::kLargeBufferBytes;

class ExchangedBuffersTest : public ::testing::Test {
 protected:
  SharedArena arena(int member) {
    const std::size_t n_bytes = SharedArena::required_bytes(2, SharedArena::kAlignment);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t to_aligned = (SharedArena::kAlignment - at % SharedArena::kAlignment) % SharedArena::kAlignment;
    return {std::span(memory_).subspan(to_aligned, n_bytes), 2, member, SharedArena::kAlignment};
  }
  std::optional<Buffer> take(int member, std::size_t n_bytes, Choice choice = Choice::kReadLast) {
    return members_[static_cast<std::size_t>(member)].take(arena(member), n_bytes, choice);
  }
  void give(int member, Buffer buffer) { members_[static_cast<std::size_t>(member)].give(buffer); }

 private:
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(SharedArena::required_bytes(2, SharedArena::kAlignment) + SharedArena::kAlignment);
  std::array<ExchangedBuffers, 2> members_;
};

TEST_F(ExchangedBuffersTest, AreWrittenByWhoeverHasReadThemLast) {
  for (const std::size_t n_bytes : {std::size_t{1}, kSmall, kSmall + 1, kLarge}) {
    for (int round = 0; round < 5; ++round) {
      const Buffer from_0 = *take(0, n_bytes);
      const Buffer from_1 = *take(1, n_bytes);
      give(0, from_1);
      give(1, from_0);
      EXPECT_EQ(take(0, n_bytes), from_1);
      EXPECT_EQ(take(1, n_bytes), from_0);
      give(0, from_1);
      give(1, from_0);
    }
  }
}

TEST_F(ExchangedBuffersTest, AreAllUsedBeforeOneIsAgain) {
  std::set<Buffer> used;
  for (std::size_t round = 0; round < 2 * SharedArena::kSmallBuffers; ++round) {
    const Buffer from_0 = *take(0, kSmall, Choice::kUnusedLongest);
    const Buffer from_1 = *take(1, kSmall, Choice::kUnusedLongest);
    EXPECT_TRUE(used.insert(from_0).second) << from_0;
    give(0, from_1);
    give(1, from_0);
  }
}

TEST_F(ExchangedBuffersTest, LieApartAndHaveRoom) {
  std::vector<std::pair<std::byte*, std::size_t>> all;
  for (const int member : {0, 1}) {
    for (const std::size_t n_bytes : {kSmall, kLarge}) {
      while (const auto buffer = take(member, n_bytes)) all.emplace_back(arena(member).buffer(*buffer), n_bytes);
    }
  }
  EXPECT_EQ(all.size(), 2 * SharedArena::kBuffers);
  std::ranges::sort(all);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].first + all[i - 1].second, all[i].first);
}

// Rounds whose buffers are read in any order on either side, or closed: each buffer has one owner, and as many are
// left.
TEST_F(ExchangedBuffersTest, HaveOneOwnerEach) {
  std::mt19937 random(29);
  using HandedOver = std::array<std::optional<Buffer>, 2>;
  const auto choice = [&random] { return random() % 2 == 0 ? Choice::kReadLast : Choice::kUnusedLongest; };
  std::deque<HandedOver> open;
  std::set<Buffer> held;
  std::size_t n_direct = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      const std::size_t n_bytes = random() % 4 == 0 ? kLarge : kSmall;
      const HandedOver round{take(0, n_bytes, choice()), take(1, n_bytes, choice())};
      for (const auto& buffer : round) {
        if (!buffer) continue;
        ASSERT_TRUE(held.insert(*buffer).second) << "two own buffer " << *buffer;
      }
      open.push_back(round);
    } else if (!open.empty()) {
      std::swap(open[random() % open.size()], open.front());
      const auto [from_0, from_1] = open.front();
      open.pop_front();
      for (const auto& buffer : {from_0, from_1}) {
        if (buffer) held.erase(*buffer);
      }
      const bool is_complete = from_0 && from_1 && random() % 3 != 0;
      if (is_complete) ++n_direct;
      if (from_0) give(is_complete ? 1 : 0, *from_0);
      if (from_1) give(is_complete ? 0 : 1, *from_1);
    }
  }
  EXPECT_GT(n_direct, 1000U);
}

}  // namespace
}  // namespace ciranda
