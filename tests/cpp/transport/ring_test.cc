#include "transport/ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "transport/channel_conformance.hpp"
#include "transport/ring_channel.hpp"

namespace ciranda {
namespace {

template <std::size_t kCapacity>
struct alignas(128) RingMemory {
  std::array<std::byte, ByteRing::required_bytes(kCapacity)> bytes{};
  ByteRing side() { return ByteRing(bytes); }
};

std::vector<std::byte> counted(std::size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + 1);
  }
  return bytes;
}

TEST(ByteRing, FillsToTheLastByteAndWrapsAround) {
  RingMemory<16> memory;
  ByteRing writer = memory.side();
  ByteRing reader = memory.side();
  const auto sent = counted(23);
  std::array<std::byte, 32> got{};
  for (std::size_t shift = 0; shift < 40; ++shift) {
    EXPECT_EQ(writer.write_some(sent), 16U);
    EXPECT_EQ(writer.write_some(sent), 0U);
    EXPECT_EQ(reader.read_some(std::span(got).first(5)), 5U);
    EXPECT_EQ(writer.write_some(std::span(sent).subspan(16)), 5U);
    EXPECT_EQ(reader.read_some(std::span(got).subspan(5)), 16U);
    EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 21, got.begin())) << "at shift " << shift;
    EXPECT_EQ(writer.write_some(std::span(sent).first(1)), 1U);  // so that the next round begins elsewhere
    EXPECT_EQ(reader.read_some(got), 1U);
  }
}

TEST(ByteRing, ReaderTakesWhatCameSinceItLastLooked) {
  RingMemory<64> memory;
  ByteRing writer = memory.side();
  ByteRing reader = memory.side();
  std::array<std::byte, 64> got{};
  writer.write_some(counted(10));
  EXPECT_EQ(reader.read_some(std::span(got).first(4)), 4U);
  writer.write_some(counted(10));
  EXPECT_EQ(reader.read_some(got), 16U);
}

TEST(ByteRing, NonsenseInTheSharedCountersClosesAndTouchesNothing) {
  for (const std::size_t word : {std::size_t{0}, ByteRing::kLineBytes}) {
    for (const bool reading : {true, false}) {
      RingMemory<64> memory;
      ByteRing ring = memory.side();
      memory.bytes[word + 5] = std::byte{0x55};
      std::array<std::byte, 256> bytes{};
      EXPECT_EQ(reading ? ring.read_some(bytes) : ring.write_some(bytes), 0U);
      EXPECT_TRUE(ring.closed());
    }
  }
}

TEST(ByteRing, TwoThreadsSeeEveryByteOnce) {
  RingMemory<1024> memory;
  const auto sent = random_bytes(1 << 20, 11);
  std::thread writer([&] {
    ByteRing ring = memory.side();
    for (std::size_t n = 0; n < sent.size();) {
      n += ring.write_some(std::span(sent).subspan(n, std::min<std::size_t>(sent.size() - n, 1 + n % 700)));
    }
  });
  ByteRing ring = memory.side();
  std::vector<std::byte> got(sent.size());
  for (std::size_t n = 0; n < got.size();) {
    n += ring.read_some(std::span(got).subspan(n));
  }
  writer.join();
  EXPECT_EQ(got, sent);
}

class RingPair final : public ChannelPair {
 public:
  Channel& left() override { return left_; }
  Channel& right() override { return right_; }
  void end_left() override { left_.close(); }

 private:
  RingMemory<4096> to_right_;
  RingMemory<4096> to_left_;
  RingChannel left_{to_right_.side(), to_left_.side()};
  RingChannel right_{to_left_.side(), to_right_.side()};
};

INSTANTIATE_TEST_SUITE_P(Ring, ChannelConformance,
                         ::testing::Values(ChannelKind{"ring", [] { return std::make_unique<RingPair>(); }}));

}  // namespace
}  // namespace ciranda
