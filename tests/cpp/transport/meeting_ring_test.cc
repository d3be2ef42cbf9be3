// MeetingRing: that nothing is written over before the other member has read it.
#include "transport/meeting_ring.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

constexpr std::size_t kUnit = SharedArena::kRingUnitBytes;
constexpr std::size_t kUnits = SharedArena::kRingUnits;

class MeetingRings : public ::testing::Test {
 protected:
  SharedArena arena(int member) {
    const std::size_t n_bytes = SharedArena::required_bytes(2, SharedArena::kAlignment);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t to_aligned = (SharedArena::kAlignment - at % SharedArena::kAlignment) % SharedArena::kAlignment;
    return {std::span(memory_).subspan(to_aligned, n_bytes), 2, member, SharedArena::kAlignment};
  }

 private:
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(SharedArena::required_bytes(2, SharedArena::kAlignment) + SharedArena::kAlignment);
};

TEST_F(MeetingRings, GiveOnePlaceAfterTheOther) {
  MeetingRing ring;
  EXPECT_EQ(ring.take(arena(0), 1), 0U);
  EXPECT_EQ(ring.take(arena(0), kUnit), 1U);
  EXPECT_EQ(ring.take(arena(0), kUnit + 1), 2U);
  EXPECT_EQ(ring.take(arena(0), 1), 4U);
}

TEST_F(MeetingRings, GiveNoPlaceThatWasNotRead) {
  MeetingRing ring;
  for (std::size_t i = 0; i < kUnits; ++i) ASSERT_EQ(ring.take(arena(0), kUnit), i);
  EXPECT_EQ(ring.take(arena(0), kUnit), std::nullopt);
  MeetingRing::note_read(arena(1), 1, kUnit);
  EXPECT_EQ(ring.take(arena(0), kUnit), std::nullopt);  // in order: the first is not read
  MeetingRing::note_read(arena(1), 0, kUnit);
  EXPECT_EQ(ring.take(arena(0), 3 * kUnit), std::nullopt);
  EXPECT_EQ(ring.take(arena(0), 2 * kUnit), 0U);
  EXPECT_EQ(ring.take(arena(0), kUnit), std::nullopt);
  // What this member reads of the other's is another matter.
  MeetingRing::note_read(arena(0), 2, kUnit);
  EXPECT_EQ(ring.take(arena(0), kUnit), std::nullopt);
}

TEST_F(MeetingRings, GiveAgainWhatWasGivenBack) {
  MeetingRing ring;
  for (std::size_t i = 0; i < kUnits; ++i) ASSERT_EQ(ring.take(arena(0), kUnit), i);
  ring.give_back(0, kUnit);
  EXPECT_EQ(ring.take(arena(0), kUnit), 0U);
  EXPECT_EQ(ring.take(arena(0), kUnit), std::nullopt);
}

// Any lengths, read in any order or given back: what is unread is never given.
TEST_F(MeetingRings, KeepWhatIsUnread) {
  std::mt19937 random(29);
  MeetingRing ring;
  std::vector<bool> is_unread(kUnits);
  std::deque<std::pair<MeetingRing::Unit, std::size_t>> unread;
  std::size_t n_taken = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      const std::size_t n_units = 1 + random() % 4;
      const auto unit = ring.take(arena(0), n_units * kUnit);
      if (!unit) continue;
      ++n_taken;
      ASSERT_LE(*unit + n_units, kUnits);
      for (std::size_t i = *unit; i < *unit + n_units; ++i) {
        ASSERT_FALSE(is_unread[i]);
        is_unread[i] = true;
      }
      unread.emplace_back(*unit, n_units);
    } else if (!unread.empty()) {
      std::swap(unread[random() % unread.size()], unread.front());
      const auto [unit, n_units] = unread.front();
      unread.pop_front();
      for (std::size_t i = unit; i < unit + n_units; ++i) is_unread[i] = false;
      if (random() % 3 == 0) {
        ring.give_back(unit, n_units * kUnit);
      } else {
        MeetingRing::note_read(arena(1), unit, n_units * kUnit);
      }
    }
  }
  EXPECT_GT(n_taken, 1000U);
}

}  // namespace
}  // namespace ciranda
