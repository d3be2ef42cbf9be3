// Bytes <-> messages: what goes in comes out; what is not exactly one well-formed message is refused, cheaply.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "agree/frames.hpp"
#include "agree/random_message.hpp"
#include "heap_meter.hpp"

namespace ciranda::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr LaneId kLane = 0x01020304;
constexpr std::size_t kTypeAt = sizeof(LaneId);

Bytes body_of(const Envelope& envelope) {
  Bytes frame;
  append_frame(envelope.lane, envelope.message, frame);
  const auto body = std::span<const std::byte>(frame).subspan(kFrameHeaderBytes);
  return {body.begin(), body.end()};
}
Bytes body_of(const Message& message) { return body_of(Envelope{kLane, message}); }

template <typename T>
void put(Bytes& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::uint8_t type_of(const Message& message) { return static_cast<std::uint8_t>(message.index()); }

// A frame that claims a list of `claimed` items, as the first thing of a message of this type.
Bytes claim(const Message& type, std::uint32_t claimed, std::size_t n_bytes_that_follow) {
  Bytes body;
  put(body, kLane);
  put(body, type_of(type));
  put(body, claimed);
  body.resize(body.size() + n_bytes_that_follow);
  return body;
}

class EveryMessage : public ::testing::TestWithParam<std::size_t> {
 protected:
  Message next() { return random_message(GetParam(), random_); }
  std::mt19937_64 random_{GetParam() + 1};
};

TEST_P(EveryMessage, ComesBack) {
  for (int i = 0; i < 200; ++i) {
    const Message message = next();
    const Bytes body = body_of(message);
    const auto decoded = decode_body(body);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_TRUE(are_equal(decoded.value().message, message));
    EXPECT_EQ(decoded.value().lane, kLane);
  }
}

TEST_P(EveryMessage, HasAHeaderThatCountsItsBytes) {
  Bytes frames;
  for (int i = 0; i < 20; ++i) {
    const std::size_t start = frames.size();
    append_frame(kLane, next(), frames);
    std::uint32_t length = 0;
    std::memcpy(&length, frames.data() + start, sizeof length);
    EXPECT_EQ(start + kFrameHeaderBytes + length, frames.size());
  }
}

TEST_P(EveryMessage, IsRefusedWhenCutShort) {
  for (int i = 0; i < 30; ++i) {
    const Bytes body = body_of(next());
    for (std::size_t length = 0; length < body.size(); ++length) {
      const Bytes cut(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(length));  // its own end, for ASan
      const auto decoded = decode_body(cut);
      ASSERT_FALSE(decoded.ok()) << length << " of " << body.size() << " bytes";
      EXPECT_EQ(decoded.status().kind(), ErrorKind::kInternal);
      EXPECT_NE(decoded.status().message().find(std::to_string(length) + " bytes"), std::string::npos);
    }
  }
}

TEST_P(EveryMessage, IsRefusedWithMoreBehindIt) {
  for (int i = 0; i < 30; ++i) {
    Bytes body = body_of(next());
    body.push_back(std::byte{0});
    EXPECT_FALSE(decode_body(body).ok());
  }
}

// Whatever a frame is changed to, decoding ends, and what it accepts is a message that encodes to the same bytes.
TEST_P(EveryMessage, SurvivesFlippedBytes) {
  for (int i = 0; i < 100; ++i) {
    Bytes body = body_of(next());
    for (std::size_t at = 0; at < body.size(); ++at) {
      const std::byte was = body[at];
      body[at] = static_cast<std::byte>(random_());
      const auto decoded = decode_body(body);
      if (decoded.ok()) {
        EXPECT_EQ(body_of(decoded.value()), body);
      }
      body[at] = was;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::size_t>& type) { return "Type" + std::to_string(type.param); }
INSTANTIATE_TEST_SUITE_P(Codec, EveryMessage, ::testing::Range(std::size_t{0}, kNumMessageTypes), name_of);

TEST(Codec, SurvivesNoise) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes body(random() % 64);
    for (std::byte& byte : body) byte = static_cast<std::byte>(random());
    if (body.size() > kTypeAt) body[kTypeAt] = static_cast<std::byte>(random() % (kNumMessageTypes + 1));
    const auto decoded = decode_body(body);
    if (decoded.ok()) {
      EXPECT_EQ(body_of(decoded.value()), body);
    }
  }
}

TEST(Codec, RefusesAnUnknownType) {
  Bytes body = body_of(WaitingMessage{});
  EXPECT_TRUE(decode_body(body).ok());
  for (const std::uint8_t type : {static_cast<std::uint8_t>(kNumMessageTypes), std::uint8_t{0xff}}) {
    body[kTypeAt] = std::byte{type};
    EXPECT_FALSE(decode_body(body).ok());
  }
  EXPECT_FALSE(decode_body(Bytes(kTypeAt)).ok());
  EXPECT_FALSE(decode_body(Bytes{}).ok());
}

TEST(Codec, RefusesAFlagThatIsNeitherYesNorNo) {
  Bytes body = body_of(ReadyMessage{{{1, true}}});
  body.back() = std::byte{2};
  EXPECT_FALSE(decode_body(body).ok());
}

TEST(Codec, RefusesAnErrorThatIsNone) {
  Bytes body = body_of(AbortMessage{ErrorKind::kTimeout, "late"});
  body[kTypeAt + 1] = static_cast<std::byte>(ErrorKind::kOk);
  EXPECT_FALSE(decode_body(body).ok());
}

TEST(Codec, RefusesNamesThatAreTooLong) {
  EXPECT_TRUE(decode_body(body_of(DuplicateMessage{std::string(kMaxNameBytes, 'x')})).ok());
  EXPECT_FALSE(decode_body(body_of(DuplicateMessage{std::string(kMaxNameBytes + 1, 'x')})).ok());
  EXPECT_FALSE(decode_body(body_of(RequestMessage{std::string(kMaxNameBytes + 1, 'x'), {}, true, true})).ok());
}

TEST(Codec, RefusesTooManyTensorsOrDimensions) {
  RequestMessage request{"x", {}, true, true};
  request.signature.tensors.resize(kMaxTensorsPerRequest);
  EXPECT_TRUE(decode_body(body_of(request)).ok());
  request.signature.tensors.resize(kMaxTensorsPerRequest + 1);
  EXPECT_FALSE(decode_body(body_of(request)).ok());
  request.signature.tensors = {{DataType::kUInt8, Shape(kMaxDimensions)}};
  EXPECT_TRUE(decode_body(body_of(request)).ok());
  request.signature.tensors = {{DataType::kUInt8, Shape(kMaxDimensions + 1)}};
  EXPECT_FALSE(decode_body(body_of(request)).ok());
}

// A length is never believed before the bytes for it are there.
TEST(Codec, RefusesHugeClaimsWithoutAllocating) {
  for (const Message& type : {Message(ReadyMessage{}), Message(DuplicateMessage{}), Message(LogMessage{})}) {
    for (const std::uint32_t claimed : {0xffffffffU, 0x80000000U, 0x7fffffffU, 1U << 26, 2000U}) {
      const Bytes body = claim(type, claimed, 100);
      const HeapMeter meter;
      EXPECT_FALSE(decode_body(body).ok());
      EXPECT_LT(meter.peak_bytes(), 8192U) << "type " << type.index() << ", " << claimed << " claimed";
    }
  }
}

// A list of eight-byte numbers that is no longer than the rest of the frame has bytes.
TEST(Codec, RefusesMoreNumbersThanTheRestHolds) {
  const std::uint32_t n_rest = 100'000;
  Bytes body = body_of(LogMessage{{ExecuteEntry{{ExecuteItem{0, true, "g", {{}}, {}, {}}}}}});
  body.resize(body.size() - sizeof n_rest);
  put(body, n_rest);
  body.resize(body.size() + n_rest);
  const HeapMeter meter;
  EXPECT_FALSE(decode_body(body).ok());
  EXPECT_LT(meter.peak_bytes(), 2048U);
}

// A list of things that are large in memory and small on the wire may be claimed by a frame full of rubbish.
TEST(Codec, RubbishCostsNoMemory) {
  const std::size_t n_bytes = 1 << 20;
  for (const Message& type : {Message(ReadyMessage{}), Message(LogMessage{})}) {
    Bytes body = claim(type, n_bytes / 8, n_bytes);
    for (std::size_t i = kTypeAt + 5; i < body.size(); ++i) body[i] = std::byte{0xee};
    const HeapMeter meter;
    EXPECT_FALSE(decode_body(body).ok());
    EXPECT_LT(meter.peak_bytes(), 1024U) << "type " << type.index();
  }
}

}  // namespace
}  // namespace ciranda::testing
