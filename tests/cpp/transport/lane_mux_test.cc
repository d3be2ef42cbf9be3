// LaneMux: lanes that write to the same peer take turns, and one that ends in the middle stops no other.
#include "transport/lane_mux.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "heap_meter.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(std::size_t n_bytes, int first) {
  Bytes bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i)
    bytes[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i % 251);
  return bytes;
}

// Two ranks with channels that are soon full.
class LaneMuxTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kCutShort = 3;
  static constexpr std::uint32_t kOther = 4;

  static LoopbackOptions narrow() { return {.with_arena = false, .ring_bytes = 4096, .costs = {}, .hosts = {}}; }

  // All that goes from the first rank to the second, in so many tries.
  Bytes exchange(std::uint32_t lane, const Bytes& bytes, int n_tries = 1000) {
    Bytes received;
    std::size_t n_sent = 0;
    for (int i = 0; i < n_tries && received.size() < bytes.size(); ++i) {
      n_sent += from_.write_some(lane, 1, std::span(bytes).subspan(n_sent));
      from_.flush();
      append(received, lane, bytes.size() - received.size());
    }
    return received;
  }

  void append(Bytes& received, std::uint32_t lane, std::size_t n_most) {
    const std::size_t before = received.size();
    received.resize(before + n_most);
    received.resize(before + to_.read_some(lane, 0, std::span(received).subspan(before)));
  }

  LoopbackFabric fabric_{2, narrow()};
  std::unique_ptr<Mesh> first_ = fabric_.take_mesh(0);
  std::unique_ptr<Mesh> second_ = fabric_.take_mesh(1);
  LaneMux from_{*first_};
  LaneMux to_{*second_};
};

TEST_F(LaneMuxTest, BringsEachLaneItsOwn) {
  const Bytes one = numbered(100'000, 1);
  const Bytes two = numbered(300'000, 2);
  EXPECT_EQ(exchange(kCutShort, one), one);
  EXPECT_EQ(exchange(kOther, two), two);
}

TEST_F(LaneMuxTest, ALaneThatWritesNoMoreStopsNoOther) {
  Bytes large = numbered(100'000, 1);
  const Bytes small = numbered(500, 2);
  ASSERT_LT(from_.write_some(kCutShort, 1, large), large.size());  // in the middle of a frame
  EXPECT_EQ(exchange(kOther, small, 10), Bytes()) << "the frame that is open is not complete";
  from_.abandon(kCutShort);
  large.assign(large.size(), std::byte{0});  // it is the caller's again
  EXPECT_TRUE(from_.has_unsent());
  EXPECT_EQ(exchange(kOther, small), small);
  EXPECT_FALSE(from_.has_unsent());
}

TEST_F(LaneMuxTest, WhatItsPeerHadBegunToReadIsComplete) {
  Bytes large = numbered(100'000, 1);
  const Bytes before = large;
  const std::size_t n_first = from_.write_some(kCutShort, 1, large);
  Bytes received;
  append(received, kCutShort, 1000);
  from_.write_some(kCutShort, 1, std::span(large).subspan(n_first));
  from_.abandon(kCutShort);
  large.assign(large.size(), std::byte{0});
  for (int i = 0; i < 1000 && received.size() < before.size(); ++i) {
    append(received, kCutShort, before.size() - received.size());
    from_.flush();
  }
  EXPECT_EQ(received, before);
}

TEST_F(LaneMuxTest, ALaneThatReadsNoMoreStopsNoOther) {
  const Bytes large = numbered(200'000, 1);
  const Bytes small = numbered(500, 2);
  std::size_t n_sent = from_.write_some(kCutShort, 1, large);
  Bytes received;
  append(received, kCutShort, 100);
  to_.abandon(kCutShort);
  for (int i = 0; i < 1000 && n_sent < large.size(); ++i) {
    n_sent += from_.write_some(kCutShort, 1, std::span(large).subspan(n_sent));
    append(received, kOther, 1);
  }
  EXPECT_EQ(n_sent, large.size());
  EXPECT_TRUE(to_.has_made_room()) << "the peer must hear of that";
  EXPECT_FALSE(to_.has_made_room());
  EXPECT_EQ(received.size(), 100U);
  EXPECT_EQ(exchange(kOther, small), small);
}

// What came for a lane before it was abandoned, and after.
TEST_F(LaneMuxTest, NothingIsKeptForALaneThatReadsNoMore) {
  constexpr std::size_t kFew = 20'000;
  const Bytes large = numbered(200'000, 1);
  const testing::HeapMeter meter;
  std::size_t n_sent = 0;
  const auto pass_on = [&](std::size_t n_most) {
    Bytes received;
    for (int i = 0; i < 1000 && n_sent < n_most; ++i) {
      n_sent += from_.write_some(kCutShort, 1, std::span(large).subspan(n_sent));
      append(received, kOther, 1);
    }
    EXPECT_GE(n_sent, n_most);
    EXPECT_TRUE(received.empty());
  };
  pass_on(large.size() / 2);
  EXPECT_GT(meter.n_bytes(), 2 * kFew) << "it is kept for the lane";
  to_.abandon(kCutShort);
  EXPECT_LT(meter.n_bytes(), kFew);
  pass_on(large.size());
  EXPECT_LT(meter.n_bytes(), kFew);
}

// The copy of what a lane left behind goes once its peer has it.
TEST_F(LaneMuxTest, WhatIsLeftBehindIsFreedOnceItIsSent) {
  constexpr std::size_t kFew = 20'000;
  const Bytes large = numbered(200'000, 1);
  from_.write_some(kCutShort, 1, large);
  const testing::HeapMeter meter;
  from_.abandon(kCutShort);
  EXPECT_GT(meter.n_bytes(), large.size() / 2);
  for (int i = 0; i < 1000 && from_.has_unsent(); ++i) {
    Bytes received;
    append(received, kCutShort, 10'000);
    from_.flush();
  }
  EXPECT_FALSE(from_.has_unsent());
  EXPECT_LT(meter.n_bytes(), kFew);
}

}  // namespace
}  // namespace ciranda
