// ExchangedBuffers: the buffers in shared memory for two members' contributions to larger direct rounds. Each member
// begins with some buffers. In every round, each hands one buffer to the other, written or not, and owns the buffer
// that it received once it has read it. So a member never waits for the other to finish reading: it writes only to
// buffers that it has read itself.
//
// If each member reads as much as it writes, each writes to the buffer that it has read last. The lines of that buffer
// are in the writer's own caches, so they need not be fetched from memory or from the other core
// (docs/performance.md). Otherwise it writes to the buffer that has been unused for longest, whose lines have long left
// the reader's caches.
//
// Called by RoundMemory; one thread a member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "transport/arena.hpp"

namespace ciranda {

class ExchangedBuffers {
 public:
  using Buffer = SharedArena::Buffer;

  enum class Choice : std::uint8_t { kReadLast, kUnusedLongest };

  // Takes a buffer with room for n_bytes, to be written and handed over; none if this member owns none of that size.
  // REQUIRES: the arena is the same in all calls and has buffers; in the same round, the other member takes a buffer
  // for the same number of bytes.
  std::optional<Buffer> take(const SharedArena& arena, std::size_t n_bytes, Choice choice) {
    if (!has_begun_) begin(arena);
    std::deque<Buffer>& own = n_bytes <= SharedArena::kSmallBufferBytes ? small_ : large_;
    if (own.empty()) return {};
    const Buffer buffer = choice == Choice::kReadLast ? own.back() : own.front();
    choice == Choice::kReadLast ? own.pop_back() : own.pop_front();
    return buffer;
  }

  // Adds a buffer to this member's: one that it took and did not hand over, or one that it received and has read.
  void give(Buffer buffer) { (SharedArena::is_small(buffer) ? small_ : large_).push_back(buffer); }

 private:
  void begin(const SharedArena& arena) {
    for (std::size_t i = 0; i < SharedArena::kSmallBuffers; ++i) small_.push_back(arena.small_buffer(i));
    for (std::size_t i = 0; i < SharedArena::kLargeBuffers; ++i) large_.push_back(arena.large_buffer(i));
    has_begun_ = true;
  }

  std::deque<Buffer> small_;
  std::deque<Buffer> large_;
  bool has_begun_ = false;
};

}  // namespace ciranda
