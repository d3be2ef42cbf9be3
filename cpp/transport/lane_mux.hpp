// LaneMux: multiplexes one byte stream a lane over the data channel of each pair of ranks, so that lanes move data at
// the same time and independently.
//
// On the channel a stream's bytes travel in frames (lane, length, bytes). A frame for a lane that is not reading is
// kept in memory until the lane reads: a slow lane delays no other, in whatever order ranks use their lanes. At most
// the bytes by which a sender may be ahead of a receiver are kept: a broadcast or a gather of one tensor.
//
// Called by ProgressLoop (flush), through WorldParts, and LaneMesh; one thread (the holder of the progress lock). The
// mesh outlives this object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "transport/channel.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class LaneMux {
 public:
  explicit LaneMux(Mesh& mesh) : mesh_(mesh), links_(static_cast<std::size_t>(mesh.size())) {}

  // REQUIRES: bytes that write_some() has not taken stay in place until the lane passes them again, or is abandoned.
  std::size_t write_some(std::uint32_t lane, int peer, std::span<const std::byte> bytes);
  std::size_t read_some(std::uint32_t lane, int peer, std::span<std::byte> bytes);

  // The lane stops writing and reading, possibly in mid-transfer. A frame that a peer has begun to receive is still
  // sent to its end, so that other lanes continue.
  void abandon(std::uint32_t lane);

  // Writes the remaining bytes that the channels had no room for. Returns whether any bytes moved.
  bool flush();
  // True if bytes were read for a lane that was not reading, since the last call of this function: the peer can write
  // more, although no lane has made progress.
  bool has_made_room() { return std::exchange(has_made_room_, false); }
  // True if the channel to the peer has sent everything. Ignores unfinished frames of abandoned lanes: a rank that
  // leaves does not wait for them.
  bool is_flushed(int peer) const;
  bool has_unsent() const;

 private:
  using Bytes = std::vector<std::byte>;

  struct Header {
    std::uint32_t lane = 0;
    std::uint32_t n_bytes = 0;
  };
  // Bytes that have arrived for one lane, which has not read them yet.
  struct Kept {
    Bytes bytes;
    std::size_t n_read = 0;
  };
  struct Link {
    // Outgoing: the open frame, with the number of its bytes left; the address of these bytes; and the bytes of its
    // header that the channel has not taken.
    Header open;
    const std::byte* rest = nullptr;
    std::array<std::byte, sizeof(Header)> unsent;
    std::size_t unsent_begin = 0;
    std::size_t unsent_end = 0;
    Bytes abandoned;  // a copy of the rest of the open frame, if its lane was abandoned; else empty
    // Incoming: bytes that were read together with a header; and the open frame, with the number of its bytes left.
    std::array<std::byte, 1024> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    Header incoming;
    std::unordered_map<std::uint32_t, Kept> kept;

    // Ignores the rest of an open frame whose lane is not abandoned: that lane writes it.
    bool has_all_sent() const { return unsent_begin == unsent_end && abandoned.empty(); }
  };

  Link& link(int peer);
  bool flush(Link& link, int peer);
  bool finish_abandoned(Link& link, int peer);
  bool next_header(Link& link, int peer);
  std::size_t take(Link& link, int peer, std::span<std::byte> bytes);
  bool keep(Link& link, int peer);
  bool drop(Link& link, int peer);

  Mesh& mesh_;
  std::vector<std::unique_ptr<Link>> links_;  // made when first used
  std::vector<int> used_;                     // the peers with links
  std::unordered_set<std::uint32_t> abandoned_;
  bool has_made_room_ = false;
};

// One lane's stream to one peer.
class LaneChannel final : public Channel {
 public:
  LaneChannel(LaneMux& mux, std::uint32_t lane, int peer, const Channel& carrier)
      : mux_(mux), lane_(lane), peer_(peer), carrier_(carrier) {}
  std::size_t write_some(std::span<const std::byte> bytes) override { return mux_.write_some(lane_, peer_, bytes); }
  std::size_t read_some(std::span<std::byte> bytes) override { return mux_.read_some(lane_, peer_, bytes); }
  ChannelState state() const override { return carrier_.state(); }

 private:
  LaneMux& mux_;
  std::uint32_t lane_;
  int peer_;
  const Channel& carrier_;
};

}  // namespace ciranda
