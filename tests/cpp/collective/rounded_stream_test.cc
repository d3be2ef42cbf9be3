// Float32 that travel as bfloat16, over a channel that takes and gives any number of bytes at a time.
#include "collective/rounded_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

// Takes, and gives, as many bytes at a time as it was made for.
class NarrowChannel final : public Channel {
 public:
  NarrowChannel(std::size_t n_at_a_write, std::size_t n_at_a_read)
      : n_at_a_write_(n_at_a_write), n_at_a_read_(n_at_a_read) {}

  using Channel::write_some;
  std::size_t write_some(std::span<const std::byte> bytes) override {
    if (std::exchange(is_full_, !is_full_)) return 0;
    const std::size_t n = std::min(bytes.size(), n_at_a_write_);
    on_the_way_.insert(on_the_way_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  std::size_t read_some(std::span<std::byte> bytes) override {
    const std::size_t n = std::min({bytes.size(), n_at_a_read_, on_the_way_.size()});
    std::copy_n(on_the_way_.begin(), n, bytes.begin());
    on_the_way_.erase(on_the_way_.begin(), on_the_way_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  ChannelState state() const override { return ChannelState::kOpen; }

 private:
  std::size_t n_at_a_write_;
  std::size_t n_at_a_read_;
  bool is_full_ = false;  // every other time
  std::deque<std::byte> on_the_way_;
};

// Of which bfloat16 loses nothing, and no two bytes of one are alike.
std::vector<float> exact_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(1 + i % 100) * (i % 2 == 0 ? 1.0F : -1.0F);
  return values;
}

std::vector<float> sent(const std::vector<float>& values, NarrowChannel channel) {
  RoundedStream writer;
  RoundedStream reader;
  std::vector<float> received(values.size());
  auto unwritten = std::as_bytes(std::span(values));
  auto unread = std::as_writable_bytes(std::span(received));
  for (std::size_t i = 0; i < 100 * values.size() && !unread.empty(); ++i) {
    unwritten = unwritten.subspan(writer.write_some(channel, unwritten));
    unread = unread.subspan(reader.read_some(channel, unread));
  }
  EXPECT_TRUE(unwritten.empty());
  EXPECT_TRUE(unread.empty());
  EXPECT_FALSE(writer.has_unsent());
  return received;
}

TEST(RoundedStreamTest, LosesNothingWhereverWritesAndReadsEnd) {
  const std::vector<float> values = exact_values(101);
  for (const std::size_t n_at_a_write : {1U, 2U, 3U, 7U, 1000U}) {
    for (const std::size_t n_at_a_read : {1U, 2U, 3U, 7U, 1000U}) {
      EXPECT_EQ(sent(values, NarrowChannel(n_at_a_write, n_at_a_read)), values)
          << n_at_a_write << " bytes at a write, " << n_at_a_read << " at a read";
    }
  }
}

}  // namespace
}  // namespace ciranda
