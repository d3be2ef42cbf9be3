#include "transport/record_channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/crc32c.hpp"
#include "transport/channel_conformance.hpp"
#include "transport/event_loop.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kRecord = RecordChannel::kRecordBytes;
constexpr std::size_t kHeaderBytes = 28;

constexpr SealKind kEncrypted{WireLevel::kEncrypt, Cipher::kAes256Gcm};
constexpr SealKind kChecked{WireLevel::kCheck, {}};
// All that prove anything, those with keys first, and of these first those that encrypt.
constexpr std::array kProving{kEncrypted, SealKind{WireLevel::kEncrypt, Cipher::kChaCha20Poly1305}, SealKind{},
                              SealKind{WireLevel::kAuthenticate, Cipher::kChaCha20Poly1305}, kChecked};
constexpr std::size_t kWithKeys = 4;
constexpr std::size_t kEncrypting = 2;

Aead::Key key_of(int direction, std::size_t socket, int session = 0) {
  Aead::Key key{};
  key[0] = static_cast<std::byte>(direction);
  key[1] = static_cast<std::byte>(socket);
  key[2] = static_cast<std::byte>(session);
  return key;
}

std::pair<UniqueFd, UniqueFd> connected_pair(int n_buffer_bytes) {
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n_buffer_bytes, sizeof(n_buffer_bytes));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Two channels over links that carry, with every poll, at most so many bytes each way.
class RecordPair final : public ChannelPair {
 public:
  explicit RecordPair(std::vector<std::size_t> speeds, SealKind seals = {}) : speeds_(std::move(speeds)) {
    std::vector<KeyedSocket> left;
    std::vector<KeyedSocket> right;
    for (std::size_t i = 0; i < speeds_.size(); ++i) {
      auto [here, near] = connected_pair(32 << 10);
      auto [far, there] = connected_pair(200 << 10);  // what has arrived may wait, while another link is behind
      left.push_back({std::move(here), {key_of(0, i), key_of(1, i)}});
      right.push_back({std::move(there), {key_of(1, i), key_of(0, i)}});
      links_.push_back({std::move(near), std::move(far), {}, {}});
    }
    left_.emplace(std::move(left), seals, [] {});
    right_.emplace(
        std::move(right), seals, [this] { ++n_failures_; },
        [this](std::span<const std::byte> note) { notes_.emplace_back(note.begin(), note.end()); });
    for (std::size_t i = 0; i < speeds_.size(); ++i) {
      EXPECT_TRUE(loop_.add(left_->socket(i).fd(), TcpChannel::kEvents, 2 * i).ok());
      EXPECT_TRUE(loop_.add(right_->socket(i).fd(), TcpChannel::kEvents, 2 * i + 1).ok());
    }
  }

  Channel& left() override { return *left_; }
  Channel& right() override { return *right_; }
  void end_left() override {
    while (left_->has_unsent()) poll();
    left_->end();
    left_.reset();
    for (int i = 0; i < 100; ++i) poll();
    for (Link& each : links_) shutdown(each.far.get(), SHUT_WR);
  }
  void poll() override {
    move();
    if (left_) left_->look_again();
    right_->look_again();
  }
  // As poll(), but what was taken and not sent is sent only when an event says that there is room.
  void move() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      carry(links_[i].near, links_[i].far, links_[i].rightward, speeds_[i]);
      carry(links_[i].far, links_[i].near, links_[i].leftward, speeds_[i]);
    }
    for (const EventLoop::Event& event : loop_.wait(0)) {
      (event.token % 2 == 0 ? *left_ : *right_).on_events(event.token / 2, event.events);
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
  const std::optional<RecordChannel::Failure>& failure() const { return right_->failure(); }
  std::optional<std::uint64_t> n_sent(std::size_t link) const { return left_->n_sent(link); }
  std::optional<std::uint64_t> n_received(std::size_t link) const { return right_->n_received(link); }
  int n_failures() const { return n_failures_; }
  void request() { left_->request(); }
  bool note(std::span<const std::byte> bytes) { return left_->note(bytes); }
  const std::vector<std::vector<std::byte>>& notes() const { return notes_; }
  std::size_t n_requests() const { return notes_.size(); }
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
  int n_failures_ = 0;
  std::vector<std::vector<std::byte>> notes_;
  std::optional<RecordChannel> left_;
  std::optional<RecordChannel> right_;
};

ChannelKind kind(const std::string& name, const std::vector<std::size_t>& speeds, SealKind seals = {}) {
  return {name, [speeds, seals] { return std::make_unique<RecordPair>(speeds, seals); }};
}

INSTANTIATE_TEST_SUITE_P(Records, ChannelConformance,
                         ::testing::Values(kind("one", {100'000}), kind("one_checked", {100'000}, kChecked),
                                           kind("one_encrypted", {100'000}, kEncrypted), kind("two", {50'000, 50'000}),
                                           kind("three", {20'000, 3'001, 90'000})),
                         [](const auto& each) { return each.param.name; });

// Writes these sizes one after the other, while the other end reads in chunks of the other sizes, in turns.
void expect_carried(RecordPair& pair, const std::vector<std::size_t>& writes, const std::vector<std::size_t>& reads) {
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

TEST(RecordChannel, CarriesWritesOfAnySize) {
  const std::vector<std::size_t> sizes{1,           0,       7,         kRecord - 1,     kRecord, kRecord + 1,
                                       1,           100'001, 3'000'001, 3 * kRecord / 2, 9,       3 * kRecord / 2 + 1,
                                       kRecord / 2, 3,       999'983,   kRecord / 2 - 1, 2,       4 * kRecord + 8};
  for (const auto& speeds :
       std::vector<std::vector<std::size_t>>{{9999, 9999}, {500, 50'000}, {30'000, 700, 8191, 60'000}}) {
    for (const SealKind seals : kProving) {
      RecordPair pair(speeds, seals);
      expect_carried(pair, sizes, {1, 1'000'000, 4093, 70'000});
    }
  }
}

TEST(RecordChannel, RequestsArriveAmongTheBytes) {
  for (const SealKind seals : kProving) {
    RecordPair pair({100'000}, seals);
    pair.request();
    expect_carried(pair, {5, 200'000, 7}, {30'000});
    EXPECT_EQ(pair.n_requests(), 1U);
    pair.set_speed(0, 0);
    const auto bytes = random_bytes(1'000'000, 3);
    const std::size_t n_taken = pair.left().write_some(bytes);
    ASSERT_TRUE(pair.left().has_unsent());
    pair.request();  // there is no room: it is sent later
    pair.set_speed(0, 100'000);
    std::vector<std::byte> read(n_taken);
    for (std::size_t n_read = 0, turn = 0; n_read < n_taken || pair.n_requests() < 2; ++turn) {
      ASSERT_LT(turn, 100'000U) << "hangs";
      pair.move();
      n_read += pair.right().read_some(std::span(read).subspan(n_read));
      std::byte more{};
      if (n_read == n_taken) {
        EXPECT_EQ(pair.right().read_some({&more, 1}), 0U);
      }
    }
    EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin()));
    expect_carried(pair, {3}, {10});
  }
}

// Slowly, so that they come in parts.
TEST(RecordChannel, NotesArriveWholeAmongTheBytes) {
  for (const SealKind seals : kProving) {
    RecordPair pair({5}, seals);
    const auto said = random_bytes(RecordChannel::kMostNoteBytes, 4);
    const auto bytes = random_bytes(40, 5);
    EXPECT_TRUE(pair.note(said));
    EXPECT_EQ(pair.left().write_some(bytes), bytes.size());
    EXPECT_TRUE(pair.note(std::span(said).first(3)));
    EXPECT_EQ(pair.n_sent(0), 3U);
    std::vector<std::byte> read(bytes.size());
    for (std::size_t n_read = 0, turn = 0; n_read < read.size() || pair.notes().size() < 2; ++turn) {
      ASSERT_LT(turn, 100'000U) << "hangs";
      if (const auto n_received = pair.n_received(0)) {
        EXPECT_EQ(n_received, pair.notes().size() + (n_read > 0 ? 1 : 0));
      }
      pair.poll();
      EXPECT_EQ(pair.n_failures(), 0);
      std::byte none{};
      n_read += pair.right().read_some(n_read < read.size() ? std::span(read).subspan(n_read) : std::span(&none, 1));
    }
    EXPECT_EQ(read, bytes);
    EXPECT_EQ(pair.notes()[0], said);
    EXPECT_TRUE(std::equal(pair.notes()[1].begin(), pair.notes()[1].end(), said.begin(), said.begin() + 3));
  }
}

// It is told unless there is something to be read; what has arrived only in part is not.
TEST(RecordChannel, WhatWasReceivedIsToldOfEachConnection) {
  RecordPair pair({200'000, 0});
  EXPECT_EQ(pair.n_received(0), 0U);
  std::vector<std::byte> bytes(2 * kRecord);
  ASSERT_EQ(pair.left().write_some(bytes), bytes.size());  // a record on each
  EXPECT_EQ(pair.n_sent(0), std::nullopt);
  while (pair.n_carried(0) < kRecord) pair.poll();
  EXPECT_EQ(pair.n_received(0), std::nullopt);
  pair.set_speed(1, 1000);
  while (pair.right().read_some(bytes) > 0 || pair.n_carried(1) < 5000) pair.poll();
  EXPECT_EQ(pair.n_received(0), 1U);
  EXPECT_EQ(pair.n_received(1), 0U);
  EXPECT_EQ(pair.n_sent(0), 1U);
}

TEST(RecordChannel, ARequestThatIsChangedIsAFailure) {
  RecordPair pair({100'000});
  pair.damage(0, 10);
  pair.request();
  std::byte byte{};
  for (int turn = 0; turn < 100; ++turn) {
    pair.poll();
    EXPECT_EQ(pair.right().read_some({&byte, 1}), 0U);
  }
  EXPECT_EQ(pair.n_requests(), 0U);
  EXPECT_EQ(pair.n_failures(), 1);
}

TEST(RecordChannel, WhatIsSmallStaysOnTheFirstSocket) {
  RecordPair pair({100'000, 100'000});
  expect_carried(pair, std::vector<std::size_t>(200, kRecord / 2 - 1), {50'000});
  EXPECT_EQ(pair.n_carried(1), 0U);
  expect_carried(pair, {10 * kRecord, 5, 5, 5}, {200'000});
  const std::size_t n_carried = pair.n_carried(1);
  EXPECT_GT(n_carried, 3 * kRecord);
  expect_carried(pair, std::vector<std::size_t>(200, 3), {50'000});
  EXPECT_EQ(pair.n_carried(1), n_carried);
}

TEST(RecordChannel, EachLinkCarriesAsMuchAsItCan) {
  for (const bool is_first_slow : {true, false}) {
    RecordPair pair({is_first_slow ? 4000U : 12'000U, is_first_slow ? 12'000U : 4000U});
    expect_carried(pair, {8'000'000, 8'000'000}, {1'000'000});
    const std::size_t n_slow = pair.n_carried(is_first_slow ? 0 : 1);  // a quarter is its part
    EXPECT_GT(n_slow, 3'000'000U);
    EXPECT_LT(n_slow, 5'500'000U);
  }
}

TEST(RecordChannel, EndsWhenOneOfItsSocketsHasEnded) {
  for (const std::size_t broken : {0U, 1U}) {
    RecordPair pair({20'000, 20'000});
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

TEST(RecordChannel, OneThatStandsStillHoldsNothingUpThatComesBeforeIt) {
  RecordPair pair({50'000, 0});
  const auto sent = random_bytes(3 * kRecord, 9);
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
  EXPECT_EQ(received.size(), kRecord);
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

TEST(RecordChannel, WhatIsChangedOnItsWayIsNotDelivered) {
  const auto sent = random_bytes(20 * kRecord, 10);
  // Bytes of headers and of what follows them, of the first records and of later ones.
  for (const std::size_t at : {0U, 4U, 7U, 8U, 12U, 24U, 28U, 5000U, 65'563U, 65'564U, 65'572U, 65'592U, 300'000U}) {
    for (const std::size_t link : {0U, 1U}) {
      RecordPair pair({20'000, 20'000}, kProving[(at + link) % kProving.size()]);
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
      ASSERT_TRUE(pair.failure()) << "byte " << at << " of link " << link;
      EXPECT_EQ(pair.failure()->defect, RecordChannel::Defect::kChanged);
      EXPECT_EQ(pair.failure()->socket, link);
      EXPECT_EQ(pair.failure()->record, at / (kRecord + kHeaderBytes));
      EXPECT_EQ(pair.n_failures(), 1);
      EXPECT_EQ(pair.right().state(), ChannelState::kClosed);
      EXPECT_EQ(pair.right().read_some(chunk), 0U);
      EXPECT_EQ(received.size() % kRecord, 0U);
      ASSERT_LT(received.size(), sent.size());
      EXPECT_TRUE(std::equal(received.begin(), received.end(), sent.begin()));
    }
  }
}

// A writer and a reader, and the bytes of one on their way to the other.
class Wire {
 public:
  explicit Wire(SealKind seals = {}, int session = 0, int session_of_reader = 0)
      : writer_(seals, session), reader_(seals, session_of_reader) {}

  RecordChannel& writer() { return *writer_.channel; }
  RecordChannel& reader() { return *reader_.channel; }

  // The bytes that were written since the last call.
  std::vector<std::byte> take() {
    std::vector<std::byte> bytes(200'000);
    const ssize_t n = recv(writer_.far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return bytes;
  }
  std::vector<std::byte> record_of(std::span<const std::byte> bytes) {
    EXPECT_EQ(writer().write_some(bytes), bytes.size());
    return take();
  }
  void give(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(reader_.far.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void end() { reader_.far = UniqueFd(); }
  // What the reader gets of all that has been given to it.
  std::vector<std::byte> read(std::size_t n_room = 4096) {
    std::vector<std::byte> all;
    std::vector<std::byte> chunk(n_room);
    for (int n_empty = 0; n_empty < 2;) {  // the end comes after the last bytes
      reader().look_again();
      const std::size_t n = reader().read_some(chunk);
      all.insert(all.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
      n_empty += n == 0 ? 1 : 0;
    }
    return all;
  }

 private:
  struct End {
    End(SealKind seals, int session) {
      auto [near, other] = connected_pair(200'000);
      far = std::move(other);
      std::vector<KeyedSocket> sockets;
      sockets.push_back({std::move(near), {key_of(0, 0, session), key_of(0, 0, session)}});
      channel.emplace(std::move(sockets), seals, [] {});
    }
    UniqueFd far;
    std::optional<RecordChannel> channel;
  };
  End writer_;
  End reader_;
};

// No later byte is needed: a reader never waits for what a wrong length promises.
TEST(RecordChannel, EveryBitIsChecked) {
  for (const std::size_t n_bytes : {1U, 4U, 60U, 1007U, 1100U}) {
    const auto payload = random_bytes(n_bytes, 11);
    const std::size_t step = n_bytes > 100 ? 7 : 1;
    for (std::size_t bit = 0; bit < 8 * (kHeaderBytes + n_bytes); bit += bit < 8 * (kHeaderBytes + 4) ? 1 : step) {
      Wire wire(kProving[bit % kProving.size()]);
      auto record = wire.record_of(payload);
      ASSERT_EQ(record.size(), kHeaderBytes + n_bytes);
      record[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      wire.give(record);
      EXPECT_TRUE(wire.read().empty()) << "bit " << bit << " of " << n_bytes;
      EXPECT_TRUE(wire.reader().failure()) << "bit " << bit << " of " << n_bytes;
    }
  }
}

TEST(RecordChannel, WithoutASealWhatIsChangedIsDelivered) {
  Wire wire({WireLevel::kNone, {}});
  auto record = wire.record_of(random_bytes(60, 12));
  record[kHeaderBytes + 3] ^= std::byte{1};
  wire.give(record);
  EXPECT_EQ(wire.read(), std::vector<std::byte>(record.begin() + kHeaderBytes, record.end()));
  EXPECT_FALSE(wire.reader().failure());
  record = wire.record_of(random_bytes(60, 13));
  record[7] = std::byte{0x7f};  // a length that no record has
  wire.give(record);
  EXPECT_TRUE(wire.read().empty());
  EXPECT_TRUE(wire.reader().failure());
}

TEST(RecordChannel, RecordsThatAreRepeatedLeftOutOrExchangedAreNotDelivered) {
  for (const std::size_t n_bytes : {5U, 5000U, 70'000U}) {
    using Order = std::vector<std::size_t>;
    for (const Order& order : {Order{0, 0}, Order{0, 2}, Order{0, 1, 1}, Order{0, 1, 0}, Order{1}, Order{0, 2, 1}}) {
      Wire wire(kProving[(order.size() + n_bytes) % kProving.size()]);
      const auto payload = random_bytes(n_bytes, 14);  // alike, so that only their places differ
      std::vector<std::vector<std::byte>> records;
      for (int i = 0; i < 3; ++i) records.push_back(wire.record_of(payload));
      std::size_t n_right = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        wire.give(records[order[i]]);
        n_right += n_right == i && order[i] == i ? 1 : 0;
        EXPECT_EQ(wire.read(80'000).size(), n_right > i ? n_bytes : 0U);
      }
      EXPECT_TRUE(wire.reader().failure());
    }
  }
}

// Computes the checksum of a record's header again, as one can who has no key.
void mend(std::span<std::byte> record, std::uint64_t sequence) {
  const auto header = record.first(kHeaderBytes - sizeof(std::uint32_t));
  const std::uint32_t sum = crc32c(header, crc32c(std::as_bytes(std::span(&sequence, 1))));
  std::copy_n(std::as_bytes(std::span(&sum, 1)).begin(), sizeof(sum),
              record.last(record.size() - header.size()).begin());
}

TEST(RecordChannel, WhoeverMendsTheChecksumHasNoTagForItWithoutTheKey) {
  for (const SealKind seals : std::span(kProving).first(kWithKeys)) {
    for (const std::size_t at : {0U, 7U, 8U, 23U, 28U, 87U}) {  // of a number, roams, the tag, the bytes
      Wire wire(seals);
      auto record = wire.record_of(random_bytes(60, 20));
      record[at] ^= std::byte{0x80};
      mend(record, 0);
      wire.give(record);
      EXPECT_TRUE(wire.read().empty()) << at;
      wire.end();
      EXPECT_TRUE(wire.read().empty()) << at;
      EXPECT_TRUE(wire.reader().failure()) << at;
    }
  }
}

TEST(RecordChannel, AnEndThatNobodySealedIsACut) {
  Wire wire;
  wire.give(wire.record_of(random_bytes(10, 21)));
  EXPECT_EQ(wire.read().size(), 10U);
  wire.writer().end();
  auto end = wire.take();
  ASSERT_EQ(end.size(), kHeaderBytes);
  end[10] ^= std::byte{1};
  mend(end, 1);
  wire.give(end);
  EXPECT_TRUE(wire.read().empty());
  ASSERT_TRUE(wire.reader().failure());
  EXPECT_EQ(wire.reader().failure()->record, 1U);
}

TEST(RecordChannel, WhatIsEncryptedShowsNothing) {
  for (std::size_t i = 0; i < kProving.size(); ++i) {
    const std::vector<std::byte> payload(500, std::byte{0x55});
    const auto record = Wire(kProving[i]).record_of(payload);
    EXPECT_EQ(std::count(record.begin(), record.end(), std::byte{0x55}) < 100, i < kEncrypting);
  }
}

TEST(RecordChannel, ARecordOpensInItsSessionAloneIfThereAreKeys) {
  const std::vector<std::byte> payload(500, std::byte{0x55});
  for (const SealKind seals : std::span(kProving).first(kWithKeys)) {
    for (const int session : {0, 1}) {
      Wire wire(seals, 0, session);
      const auto record = wire.record_of(payload);
      wire.give(record);
      EXPECT_EQ(wire.read(), session == 0 ? payload : std::vector<std::byte>());
      EXPECT_EQ(wire.reader().failure().has_value(), session != 0);
    }
  }
}

TEST(RecordChannel, AnEndIsNoFailureIfTheLastRecordSaysSo) {
  Wire wire;
  const auto payload = random_bytes(100, 15);
  wire.give(wire.record_of(payload));
  wire.writer().end();
  wire.give(wire.take());
  wire.end();
  EXPECT_EQ(wire.read(), payload);
  EXPECT_EQ(wire.reader().state(), ChannelState::kClosed);
  EXPECT_FALSE(wire.reader().failure());
}

// As when its peer has left, which another connection says sooner.
TEST(RecordChannel, WhatIsOnItsWayArrivesAfterTheChannelIsMarkedClosed) {
  Wire wire;
  const auto payload = random_bytes(3000, 20);
  const auto record = wire.record_of(payload);
  wire.reader().mark_closed();
  EXPECT_TRUE(wire.read().empty());
  wire.give(std::span(record).first(100));
  EXPECT_TRUE(wire.read().empty());
  wire.give(std::span(record).subspan(100));
  EXPECT_EQ(wire.read(), payload);
  wire.writer().end();
  wire.give(wire.take());
  wire.end();
  EXPECT_TRUE(wire.read().empty());
  EXPECT_FALSE(wire.reader().failure());
}

TEST(RecordChannel, WhatIsCutOffIsAFailure) {
  for (const std::size_t n_bytes : {4U, 3000U}) {
    for (std::size_t n_passed = 0; n_passed <= kHeaderBytes + n_bytes; n_passed += n_passed < 36 ? 1 : 500) {
      Wire wire;
      const auto payload = random_bytes(n_bytes, 16);
      const auto record = wire.record_of(payload);
      wire.give(std::span(record).first(n_passed));
      wire.end();
      EXPECT_EQ(wire.read().size(), n_passed == record.size() ? n_bytes : 0U);
      ASSERT_TRUE(wire.reader().failure()) << n_passed;
      EXPECT_EQ(wire.reader().failure()->defect, RecordChannel::Defect::kCut);
    }
  }
}

TEST(RecordChannel, ARecordThatComesInPartsIsDeliveredWhole) {
  for (const std::size_t n_room : {100U, 30'000U, 100'000U}) {
    Wire wire;
    const auto payload = random_bytes(kRecord, 17);
    const auto record = wire.record_of(payload);
    for (std::size_t at = 0; at < record.size(); at += 9000) {
      EXPECT_TRUE(wire.read(n_room).empty());
      wire.give(std::span(record).subspan(at, std::min<std::size_t>(9000, record.size() - at)));
    }
    EXPECT_EQ(wire.read(n_room), payload);
  }
}

// So that much that follows can be received where it belongs.
TEST(RecordChannel, WhatIsWrittenFirstCanBeReadByItself) {
  Wire wire;
  const auto payload = random_bytes(8 + kRecord, 18);
  ASSERT_EQ(wire.writer().write_some(std::span(payload).first(8), std::span(payload).subspan(8)), payload.size());
  wire.give(wire.take());
  std::vector<std::byte> got(1024 + kRecord);
  wire.reader().look_again();
  ASSERT_EQ(wire.reader().read_some(std::span(got).first(1024)), 8U);
  ASSERT_EQ(wire.reader().read_some(std::span(got).subspan(8, kRecord)), kRecord);
  got.resize(payload.size());
  EXPECT_EQ(got, payload);
}

// A peer whose records are wrong can still be told so.
TEST(RecordChannel, OneThatHasFailedStillWrites) {
  Wire wire;
  auto record = wire.record_of(random_bytes(10, 19));
  record.back() ^= std::byte{1};
  wire.give(record);
  EXPECT_TRUE(wire.read().empty());
  EXPECT_EQ(wire.reader().state(), ChannelState::kClosed);
  EXPECT_EQ(wire.reader().write_some(record), record.size());
}

}  // namespace
}  // namespace ciranda
