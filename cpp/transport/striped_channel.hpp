// StripedChannel: one Channel over several connections to the same peer.
//
// What is written is cut into segments, each of which goes over whichever socket takes it: a slow or crowded link gets
// fewer. A segment begins with its number, by which the other end puts them in order again, straight into the reader's
// memory: what comes too early waits in the system's buffers. What is small stays on the first socket, which is the
// only one that is looked at then: a large segment says that the next may be on any.
//
// If asked to, a segment also tells what it and its header are to be when they arrive (CRC32C). Of one that arrives
// otherwise the last bytes are not handed out: the channel has ended then, and is_damaged().
//
// A segment is taken whole: what its socket has no room for is kept here, has_unsent() meanwhile, until flush().
// Threads, failure: as Channel. Once one of the sockets has ended, all of it has.
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
  static constexpr std::size_t kSegmentBytes = 64 << 10;  // about: the last one of a write may be half as large again

  // REQUIRES: at least one; in the same order, and with the same `is_checked`, at both ends.
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
    // Only where it is checked:
    std::uint32_t sum_of_bytes = 0;
    std::uint32_t sum_of_header = 0;  // without this
  };
  struct Strand {
    explicit Strand(TcpChannel channel) : socket(std::move(channel)) {}

    TcpChannel socket;
    // Outgoing: what is left of a segment that was taken.
    std::vector<std::byte> unsent;
    std::size_t unsent_begin = 0;
    // Incoming: bytes read together with a header, and the header of a segment whose turn has not come.
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
  // Incoming: the segment that is read, and where the one after it may be.
  std::uint32_t n_begun_ = 0;
  std::size_t reader_ = 0;
  std::size_t n_to_read_ = 0;
  std::uint32_t sum_read_ = 0;
  bool is_damaged_ = false;
  bool may_come_by_any_ = false;
};

}  // namespace ciranda
