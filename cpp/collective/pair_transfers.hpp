// PairTransfers: moves ranges of bytes between piece lists and the data channels of a mesh, many peers at once.
//
// Each peer has a queue of sends and one of receives, done in order; both sides must queue the same number of bytes,
// not necessarily cut alike. Nothing is copied but by the channel itself. The piece lists outlive their transfers.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "fuse/piece_list.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class PairTransfers {
 public:
  explicit PairTransfers(Mesh& mesh) : mesh_(mesh), peers_(static_cast<std::size_t>(mesh.size())) {}

  void send(int peer, const InputPieces& pieces, std::size_t offset, std::size_t n_bytes);
  void receive(int peer, const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes);

  // Whole transfers done so far, in the order queued.
  std::size_t n_sent(int peer) const { return peers_[static_cast<std::size_t>(peer)].sends.n_done; }
  std::size_t n_received(int peer) const { return peers_[static_cast<std::size_t>(peer)].receives.n_done; }

  bool is_idle() const { return n_open_ == 0; }

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
  };

  template <typename Pieces, typename Move>
  bool advance(Queue<Pieces>& queue, Move move);
  template <typename Pieces>
  void add(Queue<Pieces>& queue, const Pieces& pieces, std::size_t offset, std::size_t n_bytes);

  Mesh& mesh_;
  std::vector<Peer> peers_;
  std::size_t n_open_ = 0;
};

}  // namespace ciranda
