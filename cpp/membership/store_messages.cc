#include "membership/store_messages.hpp"

#include "membership/wire.hpp"

namespace ciranda {
namespace {

enum class Kind : std::uint8_t { kExchange = 1, kBlobs = 2, kError = 3 };

ByteWriter begin(Kind kind) {
  ByteWriter out;
  out.number(static_cast<std::uint8_t>(kind));
  return out;
}

Status malformed(const char* what) { return Status::internal(std::string("a malformed ") + what); }

Status decode_error(ByteReader& in) {
  const auto kind = in.number<std::uint8_t>();
  std::string message = in.text(kMostErrorBytes);
  if (!in.complete() || kind == 0 || kind > static_cast<std::uint8_t>(ErrorKind::kInternal)) {
    return malformed("error from the store");
  }
  return {static_cast<ErrorKind>(kind), std::move(message)};
}

}  // namespace

std::size_t most_reply_bytes(std::uint32_t size) {
  return kMostErrorBytes + 64 + static_cast<std::size_t>(size) * (kMostBlobBytes + 4);
}

std::vector<std::byte> encode_request(const ExchangeRequest& request) {
  ByteWriter out = begin(Kind::kExchange);
  out.text(request.key).number(request.rank).number(request.size);
  out.number(static_cast<std::uint32_t>(request.timeout.count())).block(request.blob);
  out.text(std::string_view(request.cannot_come).substr(0, kMostReasonBytes));
  return out.take_frame();
}

Result<ExchangeRequest> decode_request(std::span<const std::byte> body) {
  ByteReader in(body);
  const auto kind = in.number<std::uint8_t>();
  ExchangeRequest request;
  request.key = in.text(kMostKeyBytes);
  request.rank = in.number<std::uint32_t>();
  request.size = in.number<std::uint32_t>();
  request.timeout = std::chrono::milliseconds(in.number<std::uint32_t>());
  const auto blob = in.block(kMostBlobBytes);
  request.cannot_come = in.text(kMostReasonBytes);
  if (kind != static_cast<std::uint8_t>(Kind::kExchange) || !in.complete() || request.key.empty() ||
      request.rank >= request.size) {
    return malformed("request to the store");
  }
  request.blob.assign(blob.begin(), blob.end());
  return request;
}

std::vector<std::byte> encode_blobs(std::span<const Blob> blobs) {
  ByteWriter out = begin(Kind::kBlobs);
  out.number(static_cast<std::uint32_t>(blobs.size()));
  for (const Blob& blob : blobs) out.block(blob);
  return out.take_frame();
}

std::vector<std::byte> encode_error(const Status& error) {
  ByteWriter out = begin(Kind::kError);
  out.number(static_cast<std::uint8_t>(error.kind())).text(error.message().substr(0, kMostErrorBytes));
  return out.take_frame();
}

Result<std::vector<Blob>> decode_reply(std::span<const std::byte> body) {
  ByteReader in(body);
  const auto kind = in.number<std::uint8_t>();
  if (kind == static_cast<std::uint8_t>(Kind::kError)) return decode_error(in);
  if (kind != static_cast<std::uint8_t>(Kind::kBlobs)) return malformed("reply of the store");
  const auto count = in.number<std::uint32_t>();
  std::vector<Blob> blobs;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    const auto blob = in.block(kMostBlobBytes);
    blobs.emplace_back(blob.begin(), blob.end());
  }
  if (!in.complete()) return malformed("reply of the store");
  return blobs;
}

}  // namespace ciranda
