#include "membership/store_messages.hpp"

#include <utility>

#include "base/codec.hpp"

namespace ciranda {

void code(auto& io, Is<ExchangeRequest> auto& m) {
  auto timeout_ms = static_cast<std::uint32_t>(m.timeout.count());
  io.whole(m.key);
  io(m.rank, m.size, timeout_ms, m.blob, m.why_absent);
  io.set(m.timeout, std::chrono::milliseconds(timeout_ms));
  io.require(!m.key.empty() && m.key.size() <= kMostKeyBytes && m.rank < m.size && m.blob.size() <= kMostBlobBytes);
}

namespace {

enum class Kind : std::uint8_t { kExchange = 1, kBlobs = 2, kError = 3 };

template <typename... Values>
std::vector<std::byte> message_of(Kind kind, std::size_t most_text_bytes, const Values&... values) {
  std::vector<std::byte> bytes;
  bytes.reserve(kMostKeyBytes);  // gcc 12 warns of a copy beyond the end of what it has grown itself
  ByteWriter(bytes, most_text_bytes)(kind, values...);
  return bytes;
}

Status malformed(const char* what) { return Status::internal(std::string("a malformed ") + what); }

}  // namespace

std::size_t most_reply_bytes(std::uint32_t size) {
  return kMostErrorBytes + 64 + static_cast<std::size_t>(size) * (kMostBlobBytes + 4);
}

std::vector<std::byte> encode_request(const ExchangeRequest& request) {
  return message_of(Kind::kExchange, kMostReasonBytes, request);
}

Result<ExchangeRequest> decode_request(std::span<const std::byte> message) {
  ByteReader in(message, kMostReasonBytes);
  std::uint8_t kind = 0;
  ExchangeRequest request;
  in(kind, request);
  if (!in.is_complete() || kind != static_cast<std::uint8_t>(Kind::kExchange)) return malformed("request to the store");
  return request;
}

std::vector<std::byte> encode_blobs(std::span<const Blob> blobs) { return message_of(Kind::kBlobs, kAnyLength, blobs); }

std::vector<std::byte> encode_error(const Status& error) {
  return message_of(Kind::kError, kMostErrorBytes, error.kind(), error.message());
}

Result<std::vector<Blob>> decode_reply(std::span<const std::byte> reply) {
  ByteReader in(reply, kMostErrorBytes);
  std::uint8_t kind = 0;
  in(kind);
  if (kind == static_cast<std::uint8_t>(Kind::kError)) {
    ErrorKind error{};
    std::string message;
    in(error, message);
    return in.is_complete() ? Status(error, std::move(message)) : malformed("error from the store");
  }
  std::vector<Blob> blobs;
  in(blobs);
  for (const Blob& blob : blobs) in.require(blob.size() <= kMostBlobBytes);
  if (!in.is_complete() || kind != static_cast<std::uint8_t>(Kind::kBlobs)) return malformed("reply of the store");
  return blobs;
}

}  // namespace ciranda
