// StripedChannel: one Channel over several connections to the same peer.
//
// The stream is cut into segments. Each goes over the first socket found with room, so a slow or crowded link gets
// fewer. A segment begins with its number. The reader takes segments in the order of their numbers, straight into its
// memory; early ones wait in the kernel's buffers. Small segments stay on the first socket, and the reader then polls
// only that one: a large segment's header says that the next may be on any socket.
//
// With `is_checked`, a segment has CRC32Cs of its bytes and of its header. If one differs, the segment's last bytes are
// not delivered: the channel has ended, and is_damaged() is true.
//
// A segment is taken whole. The channel keeps the bytes for which its socket has no room, until flush(); meanwhile
// has_unsent() is true.
// Called by SocketMesh, which makes it; through Channel by its callers. Threads, failure: as Channel. If one socket
// ends, the whole channel has ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/channel.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {

class StripedChannel final : public Channel {
 public:
  static constexpr std::size_t kSegmentBytes = 64 << 10;  // the last segment of a write may be half as large again

  // REQUIRES: at least one socket; the same order of sockets, and the same `is_checked`, at both ends.
  explicit StripedChannel(std::vector<TcpChannel> sockets, bool is_checked = false);

  std::size_t write_some(std::span<const std::byte> bytes) override { return write_some(bytes, {}); }
  std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) override;
  std::size_t read_some(std::span<std::byte> bytes) override;
  ChannelState state() const override;
  bool has_unsent() const override;
  void flush();
  bool is_damaged() const { return is_damaged_; }

  std::size_t n_sockets() const { return strands_.size(); }
  TcpChannel& socket(std::size_t index) { return strands_[index].socket; }

 private:
  struct Header {
    std::uint32_t number = 0;
    std::uint32_t n_bytes : 31 = 0;
    std::uint32_t roams : 1 = 0;  // the next segment may be on any socket, not just the first
    // Only if is_checked_:
    std::uint32_t sum_of_bytes = 0;
    std::uint32_t sum_of_header = 0;  // of all fields above
  };
  struct Strand {
    explicit Strand(TcpChannel channel) : socket(std::move(channel)) {}

    TcpChannel socket;
    // Outgoing: the unsent rest of a segment that was taken.
    std::vector<std::byte> unsent;
    std::size_t unsent_begin = 0;
    // Incoming: bytes read together with a header, and the header of a segment that is not the next one yet.
    std::array<std::byte, 1024> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    bool has_header = false;
    Header header;
  };

  static bool flush(Strand& strand);
  bool write_segment(Strand& strand, Header header, std::span<const std::byte> first,
                     std::span<const std::byte> second);
  bool look_for_header(Strand& strand);
  bool hand_out(const Header& header, std::span<const std::byte> first, std::span<const std::byte> second);
  bool find_segment();
  std::size_t take(std::span<std::byte> bytes);

  std::vector<Strand> strands_;
  bool is_checked_;
  std::size_t n_header_bytes_;
  // Outgoing.
  std::uint32_t n_written_ = 0;  // segments
  bool may_write_to_any_ = false;
  std::size_t next_writer_ = 0;
  // Incoming: the segment being read, and whether the next may be on any socket.
  std::uint32_t n_begun_ = 0;
  std::size_t reader_ = 0;
  std::size_t n_to_read_ = 0;
  std::uint32_t sum_read_ = 0;
  bool is_damaged_ = false;
  bool may_arrive_by_any_ = false;
};

}  // namespace ciranda
