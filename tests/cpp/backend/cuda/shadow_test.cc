// Which uses of memory are ordered, by ranges of bytes.
#include "shadow.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ciranda::fakes {
namespace {

UseOf use(unsigned stream, std::uint64_t position) {
  return std::make_shared<const Use>(Use{{stream, position}, "stream " + std::to_string(stream)});
}

VectorClock after(std::initializer_list<Moment> moments) {
  VectorClock clock;
  for (const Moment& each : moments) clock.add(each);
  return clock;
}

TEST(VectorClock, CoversWhatItWasJoinedWith) {
  VectorClock clock = after({{3, 5}, {1, 2}});
  clock.join(after({{2, 1}, {3, 4}}));
  EXPECT_TRUE(clock.covers({1, 2}) && clock.covers({2, 1}) && clock.covers({3, 5}));
  EXPECT_FALSE(clock.covers({1, 3}) || clock.covers({2, 2}) || clock.covers({3, 6}) || clock.covers({4, 1}));
}

TEST(Shadow, OrderedUsesAreNoConflict) {
  Shadow shadow;
  EXPECT_FALSE(shadow.touch(use(1, 1), 0, 100, true, after({{1, 1}})));
  EXPECT_FALSE(shadow.touch(use(2, 1), 0, 100, false, after({{1, 1}, {2, 1}})));
  EXPECT_FALSE(shadow.touch(use(3, 1), 0, 100, false, after({{1, 1}, {3, 1}})));
  EXPECT_FALSE(shadow.touch(use(1, 2), 0, 100, true, after({{1, 2}, {2, 1}, {3, 1}})));
}

TEST(Shadow, ReadsNeedNoOrder) {
  Shadow shadow;
  EXPECT_FALSE(shadow.touch(use(1, 1), 0, 8, false, after({{1, 1}})));
  EXPECT_FALSE(shadow.touch(use(2, 1), 0, 8, false, after({{2, 1}})));
}

TEST(Shadow, AConflictTellsTheOtherUseAndTheBytes) {
  Shadow shadow;
  EXPECT_FALSE(shadow.touch(use(1, 1), 10, 20, true, after({{1, 1}})));
  const auto conflict = shadow.touch(use(2, 1), 15, 30, false, after({{2, 1}}));
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->earlier->what, "stream 1");
  EXPECT_TRUE(conflict->earlier_writes);
  EXPECT_EQ(conflict->begin, 15U);
  EXPECT_EQ(conflict->end, 20U);
  EXPECT_FALSE(shadow.touch(use(3, 1), 20, 30, true, after({{3, 1}, {2, 1}})));
}

TEST(Shadow, AWriteIsComparedWithEveryRead) {
  Shadow shadow;
  EXPECT_FALSE(shadow.touch(use(1, 1), 0, 8, false, after({{1, 1}})));
  EXPECT_FALSE(shadow.touch(use(2, 1), 0, 8, false, after({{2, 1}})));
  const auto conflict = shadow.touch(use(1, 2), 0, 8, true, after({{1, 2}}));
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->earlier->what, "stream 2");
  EXPECT_FALSE(conflict->earlier_writes);
}

TEST(Shadow, WhatIsStillUsedIsFound) {
  Shadow shadow;
  EXPECT_FALSE(shadow.touch(use(1, 1), 0, 8, true, after({{1, 1}})));
  EXPECT_TRUE(shadow.find_unordered(after({})));
  EXPECT_FALSE(shadow.find_unordered(after({{1, 1}})));
  EXPECT_FALSE(shadow.touch(use(2, 1), 4, 6, false, after({{1, 1}, {2, 1}})));
  EXPECT_TRUE(shadow.find_unordered(after({{1, 1}})));
}

// The same, byte by byte.
class Bytes {
 public:
  bool touch(const UseOf& use, std::size_t begin, std::size_t end, bool writes, const VectorClock& before) {
    bool is_unordered = false;
    for (std::size_t at = begin; at < end; ++at) {
      Byte& byte = bytes_[at];
      if (byte.write && !before.covers(byte.write->moment)) is_unordered = true;
      for (const UseOf& read : byte.reads) is_unordered |= writes && !before.covers(read->moment);
    }
    for (std::size_t at = begin; at < end && !is_unordered; ++at) {
      if (writes)
        bytes_[at] = {use, {}};
      else
        bytes_[at].reads.push_back(use);
    }
    return is_unordered;
  }

 private:
  struct Byte {
    UseOf write;
    std::vector<UseOf> reads;
  };
  std::vector<Byte> bytes_ = std::vector<Byte>(64);
};

TEST(Shadow, RandomUsesAreJudgedAsByteByByte) {
  std::minstd_rand draws(7);
  std::size_t n_conflicts = 0;
  for (int round = 0; round < 200; ++round) {
    Shadow shadow;
    Bytes bytes;
    std::vector<VectorClock> clocks(4);
    for (std::uint64_t step = 1; step <= 40; ++step) {
      const auto stream = static_cast<unsigned>(draws() % 4);
      if (draws() % 3 == 0) clocks[stream].join(clocks[draws() % 4]);
      clocks[stream].add({stream, step});
      std::size_t begin = draws() % 64;
      std::size_t end = draws() % 64;
      if (begin > end) std::swap(begin, end);
      const bool writes = draws() % 3 == 0;
      const bool expected = bytes.touch(use(stream, step), begin, end + 1, writes, clocks[stream]);
      const auto found = shadow.touch(use(stream, step), begin, end + 1, writes, clocks[stream]);
      ASSERT_EQ(found.has_value(), expected) << "round " << round << ", step " << step;
      if (expected) {
        ++n_conflicts;
        break;
      }
    }
  }
  EXPECT_GT(n_conflicts, 100U);
}

}  // namespace
}  // namespace ciranda::fakes
