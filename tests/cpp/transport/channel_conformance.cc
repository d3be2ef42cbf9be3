#include "transport/channel_conformance.hpp"

#include <algorithm>

namespace ciranda {
namespace {

TEST_P(ChannelConformance, BeginsOpenAndEmpty) {
  std::vector<std::byte> chunk(10);
  EXPECT_EQ(pair_->left().state(), ChannelState::kOpen);
  EXPECT_EQ(pair_->right().state(), ChannelState::kOpen);
  EXPECT_EQ(pair_->left().read_some(chunk), 0U);
  EXPECT_EQ(pair_->right().read_some(chunk), 0U);
}

TEST_P(ChannelConformance, EmptySpansMoveNothing) {
  EXPECT_EQ(pair_->left().write_some({}), 0U);
  EXPECT_EQ(pair_->right().read_some({}), 0U);
  pair_->poll();
  EXPECT_EQ(pair_->right().state(), ChannelState::kOpen);
}

TEST_P(ChannelConformance, CarriesBytesBothWaysInOrderAtRandomChunkSizes) {
  const auto sent = random_bytes(3'000'000, 1);
  std::mt19937 random(2);
  std::uniform_int_distribution<std::size_t> any_size(1, 100'000);
  const auto carry = [&](Channel& from, Channel& to) {
    std::vector<std::byte> received;
    std::size_t n_written = 0;
    while (received.size() < sent.size()) {
      pair_->poll();
      const std::size_t n_left = sent.size() - n_written;
      n_written += from.write_some(std::span(sent).subspan(n_written, std::min(n_left, any_size(random))));
      std::vector<std::byte> chunk(any_size(random));
      const std::size_t n = to.read_some(chunk);
      received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
    }
    EXPECT_EQ(received, sent);
  };
  carry(pair_->left(), pair_->right());
  carry(pair_->right(), pair_->left());
}

TEST_P(ChannelConformance, TakesOnlyWhatFits) {
  const auto sent = random_bytes(64 << 20, 3);
  std::size_t n_written = 0;
  for (std::size_t n = 1; n != 0;) {
    n = pair_->left().write_some(std::span(sent).subspan(n_written));
    n_written += n;
  }
  ASSERT_LT(n_written, sent.size()) << "a channel without bound";
  std::vector<std::byte> received;
  while (received.size() < n_written) {
    const auto more = read_everything(*pair_, pair_->right());
    received.insert(received.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(std::equal(received.begin(), received.end(), sent.begin()));
  pair_->poll();
  EXPECT_GT(pair_->left().write_some(std::span(sent).first(1)), 0U) << "no room again after all was read";
}

TEST_P(ChannelConformance, BytesWrittenBeforeTheEndAreReadable) {
  const auto sent = random_bytes(1000, 4);
  ASSERT_EQ(pair_->left().write_some(sent), sent.size());
  pair_->end_left();
  while (pair_->right().state() == ChannelState::kOpen) {
    pair_->poll();
    std::vector<std::byte> nothing;
    pair_->right().read_some(nothing);
  }
  EXPECT_EQ(read_everything(*pair_, pair_->right()), sent);
  EXPECT_EQ(pair_->right().state(), ChannelState::kClosed);
}

TEST_P(ChannelConformance, WritingToOneThatEndedTakesNothingAndKillsNobody) {
  pair_->end_left();
  while (pair_->right().state() == ChannelState::kOpen) {
    pair_->poll();
  }
  EXPECT_EQ(pair_->right().write_some(random_bytes(10, 5)), 0U);
  EXPECT_EQ(pair_->right().state(), ChannelState::kClosed);
}

}  // namespace
}  // namespace ciranda
