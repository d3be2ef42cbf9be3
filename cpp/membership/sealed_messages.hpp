// SealedMessages: whole messages over a connection whose two ends have proved that they have the job's secret, while a
// world forms. Each is encrypted, and has a header (length, tag, checksum). The keys are those of the connection and of
// the direction, but others than those of its records (RecordChannel), which may follow on it. A message that is
// changed, repeated, left out, exchanged, or of another connection does not open.
//
// Called by StoreClient, StoreServer, probe_shared_memory() and blocking_io.hpp; one thread for each connection.
// Failure: next() returns RanksLost for a message that does not open, with a text that continues a sentence which
// begins with the name of the other end; Internal for one that is too long. No memory is allocated for a length that
// was not sealed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "transport/keyed_socket.hpp"
#include "transport/seal.hpp"

namespace ciranda {

class SealedMessages {
 public:
  static constexpr std::size_t kHeaderBytes = 24;

  explicit SealedMessages(const ConnectionKeys& keys);

  // What to send for a message, in the order of the calls.
  std::vector<std::byte> seal(std::span<const std::byte> message);

  // The number of bytes to read from the connection next: never beyond the end of the current message.
  std::size_t wants() const;
  void receive(std::span<const std::byte> bytes) { received_.insert(received_.end(), bytes.begin(), bytes.end()); }
  // The next message that has been received whole, or nothing if more bytes are needed.
  Result<std::optional<std::vector<std::byte>>> next(std::size_t most_bytes);

 private:
  struct Header {
    std::uint32_t n_bytes = 0;
    Seal::Tag tag{};             // of the length and the bytes
    std::uint32_t checksum = 0;  // of both: a length that was changed by accident is told of before its bytes come
  };
  static_assert(sizeof(Header) == kHeaderBytes);

  std::optional<Header> header() const;
  Status not_as_sealed() const;

  std::unique_ptr<Seal> outgoing_;
  std::unique_ptr<Seal> incoming_;
  std::uint64_t n_sealed_ = 0;
  std::uint64_t n_opened_ = 0;
  std::vector<std::byte> received_;
};

}  // namespace ciranda
