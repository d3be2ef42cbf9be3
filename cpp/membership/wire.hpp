// FrameBuffer: frames in a stream. A frame is a length (32 bits) and that number of bytes.
//
// Called by blocking_io.hpp, StoreServer, bootstrap_messages.hpp and store_messages.hpp; plain values. Failure: a
// length above the limit is refused before any memory is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/codec.hpp"
#include "base/status.hpp"

namespace ciranda {

inline std::vector<std::byte> framed(std::span<const std::byte> body) {
  std::vector<std::byte> frame;
  frame.reserve(sizeof(std::uint32_t) + body.size());
  ByteWriter{frame}(body);
  return frame;
}

// Cuts a stream into frames. Holds only bytes that have arrived.
class FrameBuffer {
 public:
  static constexpr std::size_t kHeaderBytes = 4;

  explicit FrameBuffer(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  // The next whole frame's body, nothing if more bytes are needed, or the error of a frame that is too long.
  Result<std::optional<std::vector<std::byte>>> next() {
    if (bytes_.size() < kHeaderBytes) return std::optional<std::vector<std::byte>>();
    const std::size_t n_bytes = body_bytes();
    if (n_bytes > most_bytes_) {
      return Status::internal("a frame of " + std::to_string(n_bytes) + " bytes; at most " +
                              std::to_string(most_bytes_) + " are allowed");
    }
    if (bytes_.size() - kHeaderBytes < n_bytes) return std::optional<std::vector<std::byte>>();
    const auto body = bytes_.begin() + kHeaderBytes;
    const auto end = body + static_cast<std::ptrdiff_t>(n_bytes);
    std::optional<std::vector<std::byte>> frame(std::in_place, body, end);
    bytes_.erase(bytes_.begin(), end);
    return frame;
  }

  // The number of bytes to read next, as far as it is known: never beyond the end of the current frame.
  std::size_t wants() const {
    if (bytes_.size() < kHeaderBytes) return kHeaderBytes - bytes_.size();
    const std::size_t n_bytes = body_bytes() + kHeaderBytes;
    return n_bytes > bytes_.size() ? n_bytes - bytes_.size() : 0;
  }

 private:
  std::size_t body_bytes() const {
    std::uint32_t n_bytes = 0;
    ByteReader{bytes_}(n_bytes);
    return n_bytes;
  }

  std::size_t most_bytes_;
  std::vector<std::byte> bytes_;
};

}  // namespace ciranda
