// FrameReader: the same messages come out however the stream is cut into pieces.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "agree/frames.hpp"
#include "agree/random_message.hpp"
#include "heap_meter.hpp"

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
  append_frame(0, DuplicateMessage{std::string(995, 'x')}, frame);
  FrameReader reader;
  std::vector<Message> read;
  const std::span<const std::byte> bytes(frame);
  reader.append(bytes.first(500));
  drain(reader, read);
  const HeapMeter meter;
  for (int i = 0; i < 2000; ++i) {
    read.clear();
    reader.append(bytes.subspan(500));
    drain(reader, read);
    reader.append(bytes.first(500));
    drain(reader, read);
    ASSERT_EQ(read.size(), 1U);
  }
  EXPECT_LT(meter.peak_bytes(), 100'000U);
}

// --- what does not fit one frame

constexpr std::size_t kSmallLimit = 300;

std::vector<Message> sent_under_small_limit(const Message& message) {
  Bytes bytes(3, std::byte{7});  // what was there before stays
  append_frame(5, message, bytes, kSmallLimit);
  FrameReader reader;
  reader.append(std::span(bytes).subspan(3));
  for (std::size_t at = 3; at < bytes.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    EXPECT_LE(length, kSmallLimit);
    at += kFrameHeaderBytes + length;
  }
  std::vector<Message> read;
  drain(reader, read);
  return read;
}

FailEntry failed(int i) {
  return {"tensor " + std::to_string(i), ErrorKind::kMismatch, std::string(100, 'x'), {{0, 1}}};
}

TEST(LargeMessages, ALogIsCutBetweenItsEntries) {
  LogMessage log;
  for (int i = 0; i < 50; ++i) log.entries.emplace_back(failed(i));
  int n_entries = 0;
  const auto read = sent_under_small_limit(log);
  EXPECT_GT(read.size(), 1U);
  for (const Message& part : read) {
    for (const LogEntry& entry : std::get<LogMessage>(part).entries) {
      EXPECT_EQ(std::get<FailEntry>(entry).name, "tensor " + std::to_string(n_entries++));
    }
  }
  EXPECT_EQ(n_entries, 50);
}

TEST(LargeMessages, ReadyReportsAreCut) {
  ReadyMessage ready;
  for (std::uint32_t cache_id = 0; cache_id < 1000; ++cache_id) ready.items.push_back({cache_id, cache_id % 3 == 0});
  std::uint32_t n_items = 0;
  for (const Message& part : sent_under_small_limit(ready)) {
    for (const ReadyMessage::Item& item : std::get<ReadyMessage>(part).items) {
      EXPECT_EQ(item.cache_id, n_items);
      EXPECT_EQ(item.is_deferrable, n_items % 3 == 0);
      ++n_items;
    }
  }
  EXPECT_EQ(n_items, 1000U);
}

TEST(LargeMessages, AnItemThatIsTooLargeByItselfAbortsInsteadOfBreakingTheStream) {
  ExecuteItem item;
  item.name = "gathered";
  item.is_defined_here = true;
  item.first_dims.assign(10, std::vector<std::int64_t>(10, 1));
  const LogMessage log{{failed(0), ExecuteEntry{{item}}, failed(1)}};
  const auto read = sent_under_small_limit(log);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<LogMessage>(read[0]));
  const auto& abort = std::get<AbortMessage>(read[1]);
  EXPECT_EQ(abort.kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(abort.text.rfind("a control message for 'gathered' of ", 0), 0U) << abort.text;
  EXPECT_NE(abort.text.find("is larger than the 300 that are possible: make groups of fewer tensors."),
            std::string::npos);
}

TEST(LargeMessages, TheLargestRequestFits) {
  RequestMessage request;
  request.name.assign(kMaxNameBytes, 'n');
  request.signature.tensors.assign(kMaxTensorsPerRequest, {DataType::kInt8, Shape(kMaxDimensions, 1)});
  Bytes bytes;
  append_frame(0, request, bytes);
  FrameReader reader;
  reader.append(bytes);
  const auto read = reader.next();
  ASSERT_TRUE(read && read->ok());
  EXPECT_TRUE(std::holds_alternative<RequestMessage>(read->value().message));
}

}  // namespace
}  // namespace ciranda::testing
