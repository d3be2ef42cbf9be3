// FrameReader: the same messages come out however the stream is cut into pieces.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "negotiate/codec.hpp"
#include "negotiate/heap_meter.hpp"
#include "negotiate/random_message.hpp"

namespace ciranda::testing {
namespace {

using Bytes = std::vector<std::byte>;

struct Stream {
  std::vector<Message> messages;
  Bytes bytes;
};

Stream one_of_each() {
  std::mt19937_64 random(3);
  Stream stream;
  for (std::size_t type = 0; type < kNumMessageTypes; ++type) {
    stream.messages.push_back(random_message(type, random));
    append_frame(0, stream.messages.back(), stream.bytes);
  }
  return stream;
}

// Takes what is there; a failure of the stream is a failure of the test.
void drain(FrameReader& reader, std::vector<Message>& out) {
  for (auto next = reader.next(); next; next = reader.next()) {
    ASSERT_TRUE(next->ok()) << next->status().message();
    out.push_back(std::move(*next).value().message);
  }
}

void expect_same(const std::vector<Message>& read, const std::vector<Message>& sent) {
  ASSERT_EQ(read.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(are_equal(read[i], sent[i])) << i;
}

TEST(FrameReader, ReadsFramesCutAtEveryPoint) {
  const Stream stream = one_of_each();
  const std::span<const std::byte> bytes(stream.bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameReader reader;
    std::vector<Message> read;
    reader.append(bytes.first(cut));
    drain(reader, read);
    reader.append(bytes.subspan(cut));
    drain(reader, read);
    ASSERT_NO_FATAL_FAILURE(expect_same(read, stream.messages)) << "cut at " << cut;
  }
}

TEST(FrameReader, ReadsByteByByte) {
  const Stream stream = one_of_each();
  FrameReader reader;
  std::vector<Message> read;
  for (const std::byte& byte : stream.bytes) {
    reader.append({&byte, 1});
    drain(reader, read);
  }
  expect_same(read, stream.messages);
}

TEST(FrameReader, ReadsManyFramesOfOneAppend) {
  const Stream stream = one_of_each();
  FrameReader reader;
  std::vector<Message> read;
  reader.append(stream.bytes);
  drain(reader, read);
  expect_same(read, stream.messages);
}

TEST(FrameReader, HasNothingWithoutBytes) {
  FrameReader reader;
  EXPECT_FALSE(reader.next());
  reader.append({});
  EXPECT_FALSE(reader.next());
}

TEST(FrameReader, RefusesALengthOverTheLimitAtOnce) {
  for (const std::uint32_t length : {static_cast<std::uint32_t>(kMaxFrameBytes) + 1, 0xffffffffU}) {
    Bytes header(kFrameHeaderBytes);
    std::memcpy(header.data(), &length, sizeof length);
    FrameReader reader;
    reader.append(header);
    const HeapMeter meter;
    const auto next = reader.next();
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->ok());
    EXPECT_NE(next->status().message().find(std::to_string(length)), std::string::npos);
    EXPECT_LT(meter.peak_bytes(), 4096U);
  }
}

TEST(FrameReader, WaitsForAFrameAsLongAsTheLimit) {
  const auto length = static_cast<std::uint32_t>(kMaxFrameBytes);
  Bytes header(kFrameHeaderBytes);
  std::memcpy(header.data(), &length, sizeof length);
  FrameReader reader;
  const HeapMeter meter;
  reader.append(header);
  EXPECT_FALSE(reader.next());
  EXPECT_LT(meter.peak_bytes(), 4096U);
}

TEST(FrameReader, ReportsAMalformedFrame) {
  const std::uint32_t length = 1;
  Bytes frame(kFrameHeaderBytes);
  std::memcpy(frame.data(), &length, sizeof length);
  frame.push_back(std::byte{0xff});
  FrameReader reader;
  reader.append(frame);
  const auto next = reader.next();
  ASSERT_TRUE(next);
  EXPECT_FALSE(next->ok());
}

// A busy stream may never be cut where a frame ends; what has been read must not pile up.
TEST(FrameReader, KeepsNoReadFramesInAnEndlessStream) {
  Bytes frame;
  append_frame(0, NoticeMessage{std::string(995, 'x')}, frame);
  FrameReader reader;
  std::vector<Message> read;
  const std::span<const std::byte> bytes(frame);
  reader.append(bytes.first(500));
  const HeapMeter meter;
  for (int i = 0; i < 2000; ++i) {
    reader.append(bytes.subspan(500));
    reader.append(bytes.first(500));
    read.clear();
    drain(reader, read);
    ASSERT_EQ(read.size(), 1U);
  }
  EXPECT_LT(meter.peak_bytes(), 100'000U);
}

}  // namespace
}  // namespace ciranda::testing
