// ByteRing: a queue of bytes from one writer to one reader, in any memory that both have mapped.
//
// Layout: a line with the tail (bytes ever written), a line with the head (bytes ever read), a line with the closed
// word, then the bytes. Head and tail are monotone 64-bit counters, so they never wrap and full differs from empty.
// Called by RingChannel and SegmentLayout. Threads: one thread at a time writes, one at a time reads; each side has its
// own ByteRing object over the same memory. Any thread may call close().
// Failure: none. With inconsistent counters (the other side has corrupted the memory) the ring is closed and empty.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ciranda {

class ByteRing {
 public:
  static constexpr std::size_t kLineBytes = 128;

  static constexpr std::size_t required_bytes(std::size_t capacity) { return 3 * kLineBytes + capacity; }

  // REQUIRES: memory is zeroed before the first side attaches, aligned to kLineBytes, and required_bytes(capacity) long
  // for a capacity that is a power of two. The memory outlives the ring.
  explicit ByteRing(std::span<std::byte> memory)
      : memory_(memory.data()), capacity_(std::bit_floor(memory.size() - 3 * kLineBytes)) {}

  // Writer: takes as many bytes as fit and returns their number; 0 if full or closed.
  std::size_t write_some(std::span<const std::byte> bytes) {
    if (closed()) return 0;
    const std::uint64_t tail = word(0).load(std::memory_order_relaxed);
    if (capacity_ - (tail - other_side_) < bytes.size()) other_side_ = word(1).load(std::memory_order_acquire);
    const std::uint64_t used = tail - other_side_;
    if (used > capacity_) {
      close();
      return 0;
    }
    const std::size_t n_bytes = std::min<std::size_t>(bytes.size(), capacity_ - used);
    const std::size_t at = tail & (capacity_ - 1);
    const std::size_t n_first = std::min(n_bytes, capacity_ - at);
    copy(data() + at, bytes.data(), n_first);
    copy(data(), bytes.data() + n_first, n_bytes - n_first);
    word(0).store(tail + n_bytes, std::memory_order_release);
    return n_bytes;
  }

  // Reader: copies the available bytes to `bytes`, as many as fit, and returns their number.
  std::size_t read_some(std::span<std::byte> bytes) {
    const std::uint64_t head = word(1).load(std::memory_order_relaxed);
    if (other_side_ - head < bytes.size()) other_side_ = word(0).load(std::memory_order_acquire);
    const std::uint64_t used = other_side_ - head;
    if (used > capacity_) {
      close();
      return 0;
    }
    const std::size_t n_bytes = std::min<std::size_t>(bytes.size(), used);
    if (n_bytes == 0) return 0;
    const std::size_t at = head & (capacity_ - 1);
    const std::size_t n_first = std::min(n_bytes, capacity_ - at);
    copy(bytes.data(), data() + at, n_first);
    copy(bytes.data() + n_first, data(), n_bytes - n_first);
    word(1).store(head + n_bytes, std::memory_order_release);
    return n_bytes;
  }

  // Any side: the bytes ever written, and ever read.
  std::uint64_t n_written() const { return word(0).load(std::memory_order_relaxed); }
  std::uint64_t n_read() const { return word(1).load(std::memory_order_relaxed); }

  // Ends the writing. Bytes written before stay readable.
  void close() { word(2).store(1, std::memory_order_release); }
  bool closed() const { return word(2).load(std::memory_order_acquire) != 0; }

 private:
  static void copy(std::byte* to, const std::byte* from, std::size_t n_bytes) {
    if (n_bytes != 0) std::memcpy(to, from, n_bytes);
  }
  std::atomic<std::uint64_t>& word(std::size_t line) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + line * kLineBytes);
  }
  std::byte* data() const { return memory_ + 3 * kLineBytes; }

  std::byte* memory_;
  std::size_t capacity_;
  std::uint64_t other_side_ = 0;  // writer: the head last seen; reader: the tail last seen
};

}  // namespace ciranda
