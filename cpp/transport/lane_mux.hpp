// LaneMux: splits the data channel of each pair of ranks into one byte stream a lane, so that lanes move data at the
// same time without knowing of each other.
//
// On the channel a stream's bytes travel in frames (lane, length, bytes). A frame for a lane that reads nothing now is
// kept in memory until it does: nobody is held up by somebody else's slowness, whatever the order in which ranks come
// to their lanes. What can gather is what a sender may be ahead of a receiver: a broadcast or a gather of one tensor.
//
// Threads: one at a time (the holder of the progress lock). The mesh outlives this.
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

  // REQUIRES: what it has not taken stays where it is until it is offered again, or the lane is abandoned.
  std::size_t write_some(std::uint32_t lane, int peer, std::span<const std::byte> bytes);
  std::size_t read_some(std::uint32_t lane, int peer, std::span<std::byte> bytes);

  // The lane will neither write nor read any more, though it may be in the middle of either. What its peers have begun
  // to receive is still sent, to the end of the frame, so that other lanes go on.
  void abandon(std::uint32_t lane);

  // Hands the channels what they had no room for when it was written. Returns whether anything moved.
  bool flush();
  // Whether bytes were taken in that no lane has asked for, since this was asked last: the peer has room for more,
  // though no lane has moved.
  bool has_made_room() { return std::exchange(has_made_room_, false); }
  // But for frames of abandoned lanes: who leaves does not wait until those are complete.
  bool is_flushed(int peer) const;
  bool has_unsent() const;

 private:
  using Bytes = std::vector<std::byte>;

  struct Header {
    std::uint32_t lane = 0;
    std::uint32_t n_bytes = 0;
  };
  // What has arrived for one lane and was not asked for yet.
  struct Kept {
    Bytes bytes;
    std::size_t n_read = 0;
  };
  struct Link {
    // Outgoing: the frame that is open, where the rest of it lies, and the bytes of its header that the channel has not
    // taken.
    Header open;
    const std::byte* rest = nullptr;
    std::array<std::byte, sizeof(Header)> unsent;
    std::size_t unsent_begin = 0;
    std::size_t unsent_end = 0;
    Bytes abandoned;  // a copy of that rest, for a lane that is abandoned; empty: none
    // Incoming: bytes that came with a header, the header being read, and how much of its frame is still to come.
    std::array<std::byte, 1024> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    Header incoming;
    std::unordered_map<std::uint32_t, Kept> kept;

    // But for what a lane that goes on will bring itself.
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
