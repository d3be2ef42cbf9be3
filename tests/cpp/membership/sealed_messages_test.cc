#include "membership/sealed_messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "text_matchers.hpp"

namespace ciranda {
namespace {

using Bytes = std::vector<std::byte>;

ConnectionKeys keys_of_one_end() {
  ConnectionKeys keys;
  keys.outgoing.fill(std::byte{1});
  keys.incoming.fill(std::byte{2});
  return keys;
}
ConnectionKeys reversed(const ConnectionKeys& keys) { return {keys.incoming, keys.outgoing}; }

constexpr std::size_t kMost = 100'000;

class SealedMessagesTest : public ::testing::Test {
 protected:
  static Bytes message_of(std::size_t n_bytes) { return Bytes(n_bytes, std::byte{7}); }
  Bytes sealed(std::size_t n_bytes) { return near_.seal(message_of(n_bytes)); }
  static void expect_next(SealedMessages& at, std::size_t n_bytes) {
    const auto message = at.next(kMost);
    ASSERT_TRUE(message.ok()) << message.status().message();
    EXPECT_EQ(message.value(), message_of(n_bytes));
  }
  // Of one that has received nothing yet.
  static void expect_opens_not(const Bytes& sent, std::size_t nth = 0) {
    SealedMessages far(reversed(keys_of_one_end()));
    far.receive(sent);
    for (std::size_t i = 0; i < nth; ++i) EXPECT_TRUE(far.next(kMost).ok());
    const auto message = far.next(kMost);
    EXPECT_EQ(message.status().kind(), ErrorKind::kRanksLost);
    EXPECT_TRUE(contains(message.status().message(), "message " + std::to_string(nth) + " on its connection is not"));
  }

  SealedMessages near_{keys_of_one_end()};
  SealedMessages far_{reversed(keys_of_one_end())};
};

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST_F(SealedMessagesTest, OpenInTheirOrderInBothDirections) {
  for (const std::size_t n_bytes : {0U, 1U, 100U, 70'000U, 3U}) {
    far_.receive(sealed(n_bytes));
    expect_next(far_, n_bytes);
  }
  near_.receive(far_.seal(message_of(5)));
  expect_next(near_, 5);
}

TEST_F(SealedMessagesTest, OpenInWhateverPiecesTheyCome) {
  Bytes sent = sealed(3);
  sent = sent + sealed(0);
  sent = sent + sealed(40);
  for (std::size_t step = 1; step <= sent.size(); ++step) {
    SealedMessages far(reversed(keys_of_one_end()));
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at < sent.size(); at += step) {
      far.receive(std::span(sent).subspan(at, std::min(step, sent.size() - at)));
      for (auto message = far.next(kMost); message.ok() && message.value(); message = far.next(kMost)) {
        sizes.push_back(message.value()->size());
      }
    }
    EXPECT_EQ(sizes, (std::vector<std::size_t>{3, 0, 40})) << "in steps of " << step;
  }
}

// What follows on the connection may be no message.
TEST_F(SealedMessagesTest, NoMoreIsWantedThanTheMessage) {
  const Bytes sent = sealed(70);
  std::size_t n_read = 0;
  while (const std::size_t n = far_.wants()) {
    ASSERT_LE(n_read + n, sent.size());
    far_.receive(std::span(sent).subspan(n_read, n));
    n_read += n;
  }
  EXPECT_EQ(n_read, sent.size());
  expect_next(far_, 70);
}

// At once: none of them is waited for.
TEST_F(SealedMessagesTest, ThoseChangedInAnyBitDoNotOpen) {
  const Bytes sent = sealed(9);
  for (std::size_t bit = 0; bit < 8 * sent.size(); ++bit) {
    Bytes changed = sent;
    changed[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    expect_opens_not(changed);
  }
}

TEST_F(SealedMessagesTest, ThoseRepeatedOrOutOfTurnDoNotOpen) {
  const Bytes first = sealed(4);
  const Bytes second = sealed(4);
  EXPECT_NE(first, second);
  expect_opens_not(second);
  expect_opens_not(first + first, 1);
  far_.receive(first + second);
  expect_next(far_, 4);
  expect_next(far_, 4);
}

TEST_F(SealedMessagesTest, ThoseOfAnotherConnectionOrDirectionDoNotOpen) {
  expect_opens_not(far_.seal(message_of(4)));
  ConnectionKeys others = keys_of_one_end();
  others.outgoing[31] ^= std::byte{1};
  expect_opens_not(SealedMessages(others).seal(message_of(4)));
}

TEST_F(SealedMessagesTest, RefuseALengthBeyondTheBoundBeforeTheBytesCome) {
  Bytes sent = sealed(11);
  sent.resize(SealedMessages::kHeaderBytes);
  far_.receive(sent);
  const auto message = far_.next(10);
  EXPECT_FALSE(message.ok());
  EXPECT_TRUE(contains(message.status().message(), "11 bytes; at most 10"));
}

// A key may see a nonce once only, and the records that follow on the connection count from 0 as well.
TEST_F(SealedMessagesTest, TheirKeysAreNotThoseOfRecords) {
  const auto of_records = make_seal({WireLevel::kEncrypt, Cipher::kAes256Gcm}, keys_of_one_end().outgoing);
  const Bytes message = message_of(20);
  Bytes as_record(message.size());
  of_records->seal(0, {}, std::array{std::span<const std::byte>(message)}, as_record.data());
  const Bytes sent = sealed(20);
  EXPECT_FALSE(std::equal(as_record.begin(), as_record.end(), sent.begin() + SealedMessages::kHeaderBytes));
}

}  // namespace
}  // namespace ciranda
