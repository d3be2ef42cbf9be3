// Channel: an ordered, reliable, non-blocking byte stream to one peer.
//
// Implementations: a socket (tcp), several of them (striped), a ring in shared memory (shm), a ring in private memory
// (loopback, for tests).
// Thread-safety: one thread at a time on each end (the holder of the engine's progress lock).
// Failure: a channel never throws. Once state() is not kOpen it stays so; bytes that arrived before are still readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda {

enum class ChannelState : std::uint8_t {
  kOpen,
  kClosed,  // the peer will write no more: it left, or died (membership knows which)
};

class Channel {
 public:
  virtual ~Channel() = default;

  // Takes as many bytes as fit now and returns how many; 0 when full (or closed). A peer that sleeps is woken by the
  // next Mesh::notify(), so that several writes cost one wake.
  virtual std::size_t write_some(std::span<const std::byte> bytes) = 0;

  // The same for two ranges, one after the other, as one.
  virtual std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::size_t n = write_some(first);
    return n < first.size() ? n : n + write_some(second);
  }

  // Fills as much of `bytes` as is there now and returns how much; 0 when nothing is there.
  virtual std::size_t read_some(std::span<std::byte> bytes) = 0;

  virtual ChannelState state() const = 0;

  // Whether bytes were taken that are not on their way yet: Mesh::poll_events() goes on with them.
  virtual bool has_unsent() const { return false; }
};

}  // namespace ciranda
