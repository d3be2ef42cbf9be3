#include "transport/striped_channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "transport/channel_conformance.hpp"
#include "transport/event_loop.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kSegment = StripedChannel::kSegmentBytes;

std::pair<UniqueFd, UniqueFd> connected_pair(int n_buffer_bytes) {
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n_buffer_bytes, sizeof(n_buffer_bytes));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Two channels over links that carry, with every poll, at most so many bytes each way.
class StripedPair final : public ChannelPair {
 public:
  explicit StripedPair(std::vector<std::size_t> speeds, bool is_checked = false) : speeds_(std::move(speeds)) {
    std::vector<TcpChannel> left;
    std::vector<TcpChannel> right;
    for (std::size_t i = 0; i < speeds_.size(); ++i) {
      auto [here, near] = connected_pair(32 << 10);
      auto [far, there] = connected_pair(200 << 10);  // what has arrived may wait, while another link is behind
      left.emplace_back(std::move(here));
      right.emplace_back(std::move(there));
      links_.push_back({std::move(near), std::move(far), {}, {}});
    }
    left_.emplace(std::move(left), is_checked);
    right_.emplace(std::move(right), is_checked);
    for (std::size_t i = 0; i < speeds_.size(); ++i) {
      EXPECT_TRUE(loop_.add(left_->socket(i).fd(), TcpChannel::kEvents, 2 * i).ok());
      EXPECT_TRUE(loop_.add(right_->socket(i).fd(), TcpChannel::kEvents, 2 * i + 1).ok());
    }
  }

  Channel& left() override { return *left_; }
  Channel& right() override { return *right_; }
  void end_left() override {
    while (left_->has_unsent()) poll();
    left_.reset();
    for (int i = 0; i < 100; ++i) poll();
    for (Link& each : links_) shutdown(each.far.get(), SHUT_WR);
  }
  void poll() override {
    move();
    if (left_) left_->flush();
    right_->flush();
  }
  // As poll(), but what was taken and not sent stays so.
  void move() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      carry(links_[i].near, links_[i].far, links_[i].rightward, speeds_[i]);
      carry(links_[i].far, links_[i].near, links_[i].leftward, speeds_[i]);
    }
    for (const EventLoop::Event& event : loop_.wait(0)) {
      (event.token % 2 == 0 ? *left_ : *right_).socket(event.token / 2).on_events(event.events);
    }
  }

  void set_speed(std::size_t link, std::size_t speed) { speeds_[link] = speed; }
  // As a connection that is reset.
  void cut(std::size_t link) {
    links_[link].near = UniqueFd();
    links_[link].far = UniqueFd();
  }
  // Changes a bit of what goes from left to right.
  void damage(std::size_t link, std::size_t at_byte) { links_[link].rightward.damaged_at = at_byte; }
  bool is_right_damaged() const { return right_->is_damaged(); }
  std::size_t n_carried(std::size_t link) const { return links_[link].rightward.n_carried; }

 private:
  struct Stream {
    std::vector<std::byte> held;
    std::size_t n_carried = 0;
    std::optional<std::size_t> damaged_at;
  };
  struct Link {
    UniqueFd near;
    UniqueFd far;
    Stream rightward;
    Stream leftward;
  };

  static void carry(const UniqueFd& from, const UniqueFd& to, Stream& stream, std::size_t speed) {
    if (!from.valid() || speed == 0) return;
    if (stream.held.empty()) {
      stream.held.resize(speed);
      const ssize_t n = recv(from.get(), stream.held.data(), speed, MSG_DONTWAIT);
      stream.held.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      if (stream.damaged_at && *stream.damaged_at - stream.n_carried < stream.held.size()) {
        stream.held[*stream.damaged_at - stream.n_carried] ^= std::byte{0x10};
      }
    }
    const ssize_t n = send(to.get(), stream.held.data(), stream.held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return;
    stream.held.erase(stream.held.begin(), stream.held.begin() + n);
    stream.n_carried += static_cast<std::size_t>(n);
  }

  std::vector<std::size_t> speeds_;
  std::vector<Link> links_;
  EventLoop loop_ = EventLoop::create().value();
  std::optional<StripedChannel> left_;
  std::optional<StripedChannel> right_;
};

template <std::size_t... kSpeeds>
ChannelKind kind(const std::string& name) {
  return {name, [] { return std::make_unique<StripedPair>(std::vector<std::size_t>{kSpeeds...}); }};
}

INSTANTIATE_TEST_SUITE_P(Striped, ChannelConformance,
                         ::testing::Values(kind<100'000>("one"), kind<50'000, 50'000>("two"),
                                           kind<20'000, 3'001, 90'000>("three"),
                                           ChannelKind{"checked",
                                                       [] {
                                                         const std::vector<std::size_t> speeds{50'000, 40'000};
                                                         return std::make_unique<StripedPair>(speeds, true);
                                                       }}),
                         [](const auto& each) { return each.param.name; });

// Writes these sizes one after the other, while the other end reads in chunks of the other sizes, in turns.
void expect_carried(StripedPair& pair, const std::vector<std::size_t>& writes, const std::vector<std::size_t>& reads) {
  const auto sent = random_bytes(std::accumulate(writes.begin(), writes.end(), std::size_t{0}), 7);
  std::vector<std::byte> received;
  std::vector<std::byte> chunk;
  std::size_t n_sent = 0;
  std::size_t n_of_write = 0;
  std::size_t write = 0;
  for (std::size_t turn = 0; received.size() < sent.size(); ++turn) {
    ASSERT_LT(turn, 1'000'000U) << "hangs";
    if (write < writes.size()) {
      // As from two places: the header of somebody else's and what it is about.
      const auto rest = std::span(sent).subspan(n_sent, writes[write] - n_of_write);
      const auto first = rest.first(std::min<std::size_t>(8, rest.size()));
      const std::size_t n = pair.left().write_some(first, rest.subspan(first.size()));
      n_sent += n;
      n_of_write += n;
      if (n_of_write == writes[write]) {
        ++write;
        n_of_write = 0;
      }
    }
    turn % 3 == 0 ? pair.poll() : pair.move();
    chunk.resize(reads[turn % reads.size()]);
    const std::size_t n = pair.right().read_some(chunk);
    received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  }
  EXPECT_EQ(received, sent);
}

TEST(StripedChannel, CarriesWritesOfAnySize) {
  const std::vector<std::size_t> sizes{1,
                                       0,
                                       7,
                                       kSegment - 1,
                                       kSegment,
                                       kSegment + 1,
                                       1,
                                       100'001,
                                       3'000'001,
                                       3 * kSegment / 2,
                                       9,
                                       3 * kSegment / 2 + 1,
                                       kSegment / 2,
                                       3,
                                       999'983,
                                       kSegment / 2 - 1,
                                       2,
                                       4 * kSegment + 8};
  for (const auto& speeds :
       std::vector<std::vector<std::size_t>>{{9999, 9999}, {500, 50'000}, {30'000, 700, 8191, 60'000}}) {
    StripedPair pair(speeds);
    expect_carried(pair, sizes, {1, 1'000'000, 4093, 70'000});
  }
}

TEST(StripedChannel, WhatIsSmallStaysOnTheFirstSocket) {
  StripedPair pair({100'000, 100'000});
  expect_carried(pair, std::vector<std::size_t>(200, kSegment / 2 - 1), {50'000});
  EXPECT_EQ(pair.n_carried(1), 0U);
  expect_carried(pair, {10 * kSegment, 5, 5, 5}, {200'000});
  const std::size_t n_carried = pair.n_carried(1);
  EXPECT_GT(n_carried, 3 * kSegment);
  expect_carried(pair, std::vector<std::size_t>(200, 3), {50'000});
  EXPECT_EQ(pair.n_carried(1), n_carried);
}

TEST(StripedChannel, EachLinkCarriesAsMuchAsItCan) {
  for (const bool is_first_slow : {true, false}) {
    StripedPair pair({is_first_slow ? 4000U : 12'000U, is_first_slow ? 12'000U : 4000U});
    expect_carried(pair, {8'000'000, 8'000'000}, {1'000'000});
    const std::size_t n_slow = pair.n_carried(is_first_slow ? 0 : 1);  // a quarter is its part
    EXPECT_GT(n_slow, 3'000'000U);
    EXPECT_LT(n_slow, 5'500'000U);
  }
}

TEST(StripedChannel, EndsWhenOneOfItsSocketsHasEnded) {
  for (const std::size_t broken : {0U, 1U}) {
    StripedPair pair({20'000, 20'000});
    const auto sent = random_bytes(4'000'000, 8);
    std::vector<std::byte> received;
    std::vector<std::byte> chunk(30'000);
    std::size_t n_sent = 0;
    for (int turn = 0; turn < 1000; ++turn) {
      n_sent += pair.left().write_some(std::span(sent).subspan(n_sent));
      pair.poll();
      const std::size_t n = pair.right().read_some(chunk);
      received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
      if (turn == 20) pair.cut(broken);
    }
    EXPECT_EQ(pair.left().state(), ChannelState::kClosed);
    EXPECT_EQ(pair.right().state(), ChannelState::kClosed);
    EXPECT_LT(n_sent, sent.size());
    EXPECT_EQ(pair.left().write_some(sent), 0U);
    EXPECT_GT(received.size(), 0U);
    ASSERT_LT(received.size(), sent.size());
    EXPECT_TRUE(std::equal(received.begin(), received.end(), sent.begin()));
  }
}

TEST(StripedChannel, OneThatStandsStillHoldsNothingUpThatComesBeforeIt) {
  StripedPair pair({50'000, 0});
  const auto sent = random_bytes(3 * kSegment, 9);
  std::size_t n_sent = 0;
  std::vector<std::byte> received;
  std::vector<std::byte> chunk(sent.size());
  for (int turn = 0; turn < 100; ++turn) {
    n_sent += pair.left().write_some(std::span(sent).subspan(n_sent));
    pair.poll();
    const std::size_t n = pair.right().read_some(chunk);
    received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  }
  EXPECT_EQ(n_sent, sent.size());
  EXPECT_EQ(received.size(), kSegment);
  EXPECT_TRUE(pair.left().has_unsent());
  pair.set_speed(1, 50'000);
  for (int turn = 0; turn < 100; ++turn) {
    pair.poll();
    const std::size_t n = pair.right().read_some(chunk);
    received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  }
  EXPECT_FALSE(pair.left().has_unsent());
  EXPECT_EQ(received, sent);
}

TEST(StripedChannel, WhatIsChangedOnItsWayIsNotHandedOut) {
  const auto sent = random_bytes(20 * kSegment, 10);
  // Bytes of headers and of what follows them, of the first segments and of later ones.
  for (const std::size_t at : {0U, 4U, 7U, 8U, 12U, 16U, 5000U, 65'551U, 65'552U, 65'560U, 65'564U, 300'000U}) {
    for (const std::size_t link : {0U, 1U}) {
      StripedPair pair({20'000, 20'000}, true);
      pair.damage(link, at);
      std::size_t n_sent = 0;
      std::vector<std::byte> received;
      std::vector<std::byte> chunk(30'000);
      for (int turn = 0; turn < 300; ++turn) {
        n_sent += pair.left().write_some(std::span(sent).subspan(n_sent));
        pair.poll();
        const std::size_t n = pair.right().read_some(chunk);
        received.insert(received.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
      }
      EXPECT_TRUE(pair.is_right_damaged()) << "byte " << at << " of link " << link;
      EXPECT_EQ(pair.right().state(), ChannelState::kClosed);
      EXPECT_EQ(pair.right().read_some(chunk), 0U);
      // Of the segment that was changed all but its last bytes may have been handed out.
      const auto n_right = std::mismatch(received.begin(), received.end(), sent.begin()).first - received.begin();
      EXPECT_LT(received.size() - static_cast<std::size_t>(n_right), kSegment);
      EXPECT_LT(received.size(), sent.size());
    }
  }
}

}  // namespace
}  // namespace ciranda
