// ByteWriter and ByteReader: little-endian fields in a buffer; FrameBuffer: frames in a stream.
//
// Threads: plain values. Failure: a reader that is asked for more than there is returns zeros and empty strings from
// then on and is not ok(); lengths are checked before memory is asked for.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace ciranda {

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  ByteWriter& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
    return *this;
  }
  ByteWriter& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  // Its length (32 bits), then it.
  ByteWriter& block(std::span<const std::byte> bytes) {
    return number(static_cast<std::uint32_t>(bytes.size())).raw(bytes);
  }
  ByteWriter& text(std::string_view text) { return block(std::as_bytes(std::span(text))); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }
  // With the length (32 bits) in front.
  std::vector<std::byte> take_frame() {
    ByteWriter frame;
    frame.bytes_.reserve(bytes_.size() + 4);
    return frame.block(bytes_).take();
  }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint64_t value = 0;
    const auto field = raw(sizeof(T));
    for (std::size_t i = 0; i < field.size(); ++i) value |= std::to_integer<std::uint64_t>(field[i]) << (8 * i);
    return static_cast<T>(value);
  }
  // One byte, 0 or 1.
  bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) ok_ = false;
    return value == 1;
  }
  // A view into the buffer; empty when there are fewer bytes.
  std::span<const std::byte> raw(std::size_t n_bytes) {
    if (!ok_ || n_bytes > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const auto field = bytes_.first(n_bytes);
    bytes_ = bytes_.subspan(n_bytes);
    return field;
  }
  std::span<const std::byte> block(std::size_t most_bytes) {
    const std::size_t n_bytes = number<std::uint32_t>();
    if (n_bytes > most_bytes) ok_ = false;
    return raw(n_bytes);
  }
  std::string text(std::size_t most_bytes) {
    const auto bytes = block(most_bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  template <std::size_t N>
  void array(std::array<std::byte, N>& out) {
    const auto field = raw(N);
    std::copy(field.begin(), field.end(), out.begin());
  }

  bool ok() const { return ok_; }
  // Everything has been read, and nothing beyond.
  bool complete() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

// Cuts a stream into frames: a length (32 bits) and so many bytes. Holds no more than what has arrived.
class FrameBuffer {
 public:
  static constexpr std::size_t kHeaderBytes = 4;

  explicit FrameBuffer(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  // The next whole frame's body, nothing when more bytes are needed, or the error of a frame that is too long.
  Result<std::optional<std::vector<std::byte>>> next() {
    if (bytes_.size() < kHeaderBytes) return std::optional<std::vector<std::byte>>();
    const std::size_t n_bytes = ByteReader(bytes_).number<std::uint32_t>();
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

  // How many bytes are missing for a whole frame, as far as that is known; reads no further than this frame's end.
  std::size_t wants() const {
    if (bytes_.size() < kHeaderBytes) return kHeaderBytes - bytes_.size();
    const std::size_t n_bytes = ByteReader(bytes_).number<std::uint32_t>() + kHeaderBytes;
    return n_bytes > bytes_.size() ? n_bytes - bytes_.size() : 0;
  }

 private:
  std::size_t most_bytes_;
  std::vector<std::byte> bytes_;
};

}  // namespace ciranda
