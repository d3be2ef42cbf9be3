// The messages between ranks and the rendezvous store, after authentication.
//
// There is one request: a rank contributes its blob for a key, and gets all ranks' blobs when all have arrived; or it
// reports why it cannot take part. There are two replies: the blobs by rank, or an error. They travel
// sealed (SealedMessages). Decoding trusts no input. Called by StoreClient, StoreServer, StoreExchanges; pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace ciranda {

inline constexpr std::size_t kMostBlobBytes = 64 << 10;
inline constexpr std::size_t kMostKeyBytes = 256;
inline constexpr std::size_t kMostReasonBytes = 4 << 10;
inline constexpr std::size_t kMostRequestBytes = kMostBlobBytes + kMostKeyBytes + kMostReasonBytes + 64;
inline constexpr std::size_t kMostErrorBytes = 64 << 10;

using Blob = std::vector<std::byte>;

struct ExchangeRequest {
  std::string key;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::chrono::milliseconds timeout{0};
  Blob blob;
  std::string why_absent = {};  // the reason why the rank cannot take part; empty if it does
};

// The size of the longest reply to an exchange among `size` ranks.
std::size_t most_reply_bytes(std::uint32_t size);

std::vector<std::byte> encode_request(const ExchangeRequest& request);
Result<ExchangeRequest> decode_request(std::span<const std::byte> message);

std::vector<std::byte> encode_blobs(std::span<const Blob> blobs);
std::vector<std::byte> encode_error(const Status& error);
// The blobs, or the error that the store sent, or Internal for an invalid reply.
Result<std::vector<Blob>> decode_reply(std::span<const std::byte> reply);

}  // namespace ciranda
