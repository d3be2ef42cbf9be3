// PairTransfers: moves ranges of bytes between piece lists and the data channels of a mesh, many peers at once.
//
// Each peer has a queue of sends and one of receives, done in order; both sides must queue the same number of bytes,
// not necessarily cut alike. Nothing is copied but by the channel itself, unless values are rounded on the way. The
// piece lists outlive their transfers.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "collective/rounded_stream.hpp"
#include "fuse/piece_list.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class PairTransfers {
 public:
  explicit PairTransfers(Mesh& mesh) : mesh_(mesh), peers_(static_cast<std::size_t>(mesh.size())) {}

  // What this peer and this rank have for each other is float32, and travels as bfloat16. REQUIRES: it does the same.
  void round_for(int peer) { peers_[static_cast<std::size_t>(peer)].rounded.emplace(); }

  void send(int peer, const InputPieces& pieces, std::size_t offset, std::size_t n_bytes);
  void receive(int peer, const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes);

  // Whole transfers done so far, in the order queued.
  std::size_t n_sent(int peer) const { return peers_[static_cast<std::size_t>(peer)].sends.n_done; }
  std::size_t n_received(int peer) const { return peers_[static_cast<std::size_t>(peer)].receives.n_done; }

  bool is_idle() const { return n_open_ == 0 && n_unsent_ == 0; }

  // The peers that still have to send, or to take, something.
  std::vector<int> awaited() const;

  // Moves what the channels take and have now. Returns whether anything moved.
  bool step();

 private:
  template <typename Pieces>
  struct Queue {
    struct Transfer {
      const Pieces* pieces;
      std::size_t offset;
      std::size_t n_bytes;
    };
    std::deque<Transfer> open;
    std::size_t n_done = 0;
  };
  struct Peer {
    Queue<InputPieces> sends;
    Queue<OutputPieces> receives;
    std::optional<RoundedStream> rounded;

    bool has_unsent() const { return rounded && rounded->has_unsent(); }
    bool is_idle() const { return sends.open.empty() && receives.open.empty() && !has_unsent(); }
  };

  bool step(Peer& peer, Channel& channel);
  bool step_rounded(Peer& peer, Channel& channel);
  template <typename Pieces, typename Move>
  bool advance(Queue<Pieces>& queue, Move move);
  template <typename Pieces>
  void add(Queue<Pieces>& queue, const Pieces& pieces, std::size_t offset, std::size_t n_bytes);

  Mesh& mesh_;
  std::vector<Peer> peers_;
  std::size_t n_open_ = 0;
  std::size_t n_unsent_ = 0;  // peers for which something is kept
};

}  // namespace ciranda
