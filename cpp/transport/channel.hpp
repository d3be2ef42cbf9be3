// Channel: an ordered, reliable, non-blocking byte stream to one peer.
//
// Implementations: records on one or several sockets, a bare socket (tcp), rings in shared memory (shm), rings in
// private memory (loopback, for tests), and a lane's share of another one (LaneChannel, in lane_mux.hpp).
//
// Called by ControlPlane, PairTransfers and RoundedStream, to which Mesh gives it, to read and write; by LaneMux, of
// the channels below it; implemented by LaneChannel, RingChannel, RecordChannel and TcpChannel.
// On each end one thread at a time: the holder of the progress lock. Failure: a channel never throws. Once state() is
// not kOpen, it never is again; bytes that arrived before the end are still readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda {

enum class ChannelState : std::uint8_t {
  kOpen,
  kClosed,  // the peer writes no more: it left, or died (membership knows which)
};

class Channel {
 public:
  virtual ~Channel() = default;

  // Takes as many bytes as fit now and returns their number; 0 if full or closed. The next Mesh::notify() wakes a
  // sleeping peer, so several writes cost one wake-up.
  virtual std::size_t write_some(std::span<const std::byte> bytes) = 0;

  // Writes the concatenation of two ranges in the same way.
  virtual std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::size_t n = write_some(first);
    return n < first.size() ? n : n + write_some(second);
  }

  // Copies the bytes that have arrived to `bytes`, as many as fit, and returns their number; 0 if none have arrived.
  // The rest of `bytes` may be changed, too.
  virtual std::size_t read_some(std::span<std::byte> bytes) = 0;

  virtual ChannelState state() const = 0;

  // True if the channel has taken bytes that it has not sent yet. Mesh::poll_events() continues to send them.
  virtual bool has_unsent() const { return false; }
};

}  // namespace ciranda
