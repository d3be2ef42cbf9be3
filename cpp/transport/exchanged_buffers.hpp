// ExchangedBuffers: the shared memory in which two members lay what they contribute to larger direct rounds. Each
// begins with some buffers; in every round each hands one to the other, whether it has written to it or not, and owns
// the one it got once it has read that. So nobody waits for the other to have read: that this member has, it knows.
//
// Where each reads as much as it writes, each writes to the buffer that it has read last: its lines are in the writer's
// own caches, and are neither taken back from the other's nor fetched (docs/performance.md). Where not, to the one that
// was not used for longest: its lines have long left the caches of whoever has read them.
//
// One thread a member.
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

  // One that has room for so many bytes, to be written and handed over; none while this member has handed over all.
  // REQUIRES, as below: the arena, always the same, has buffers; the other member asks for one of as many bytes at the
  // same round.
  std::optional<Buffer> take(const SharedArena& arena, std::size_t n_bytes, Choice choice) {
    if (!has_begun_) begin(arena);
    std::deque<Buffer>& own = n_bytes <= SharedArena::kSmallBufferBytes ? small_ : large_;
    if (own.empty()) return {};
    const Buffer buffer = choice == Choice::kReadLast ? own.back() : own.front();
    choice == Choice::kReadLast ? own.pop_back() : own.pop_front();
    return buffer;
  }

  // It is this member's: it was not handed over, or the other handed it over and this member has read it.
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
