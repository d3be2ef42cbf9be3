// LaneMux: splits the data channel of each pair of ranks into one byte stream a lane, so that lanes move data at the
// same time without knowing of each other.
//
// On the channel a stream's bytes travel in frames (lane, length, bytes). A frame for a lane that reads nothing now is
// kept in memory until it does: nobody is held up by somebody else's slowness, whatever the order in which ranks come
// to their lanes. What can gather is what a sender may be ahead of a receiver: a broadcast or a gather of one tensor.
//
// Threads: one at a time (the holder of the progress token). The mesh outlives this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/channel.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class LaneMux {
 public:
  explicit LaneMux(Mesh& mesh) : mesh_(mesh), links_(static_cast<std::size_t>(mesh.size())) {}

  std::size_t write_some(std::uint32_t lane, int peer, std::span<const std::byte> bytes);
  std::size_t read_some(std::uint32_t lane, int peer, std::span<std::byte> bytes);

  // Hands the channels what they had no room for when it was written. Returns whether anything moved.
  bool flush();
  bool is_flushed(int peer) const;
  bool has_unsent() const;

 private:
  struct Header {
    std::uint32_t lane = 0;
    std::uint32_t n_bytes = 0;
  };
  // What has arrived for one lane and was not asked for yet.
  struct Kept {
    std::vector<std::byte> bytes;
    std::size_t n_read = 0;
  };
  struct Link {
    // Outgoing: the frame that is open, and the bytes of its header that the channel has not taken.
    Header open;
    std::array<std::byte, sizeof(Header)> unsent;
    std::size_t unsent_begin = 0;
    std::size_t unsent_end = 0;
    // Incoming: bytes that came with a header, the header being read, and how much of its frame is still to come.
    std::array<std::byte, 1024> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    Header incoming;
    std::unordered_map<std::uint32_t, Kept> kept;
  };

  Link& link(int peer);
  bool flush(Link& link, int peer);
  bool next_header(Link& link, int peer);
  std::size_t take(Link& link, int peer, std::span<std::byte> bytes);
  bool keep(Link& link, int peer);

  Mesh& mesh_;
  std::vector<std::unique_ptr<Link>> links_;  // made when first used
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
