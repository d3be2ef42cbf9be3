// PairTransfers: moves ranges of bytes between piece lists and the data channels of a mesh, many peers at once.
//
// Each peer has a queue of sends and a queue of receives, each done in order. Both sides must queue the same number of
// bytes, but may cut them differently. Only the channel copies bytes, unless values are rounded on the way. The piece
// lists must outlive their transfers. Called by the direct algorithms, direct_*.cc, and NcclSettling; one thread (the
// holder of the progress lock).
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

  // Data between this peer and this rank is float32, and travels as bfloat16. REQUIRES: the peer calls this too.
  void enable_rounding(int peer) { peers_[static_cast<std::size_t>(peer)].rounded.emplace(); }

  void send(int peer, const InputPieces& pieces, std::size_t offset, std::size_t n_bytes);
  void receive(int peer, const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes);

  // The number of whole transfers done so far, in the order queued.
  std::size_t n_sent(int peer) const { return peers_[static_cast<std::size_t>(peer)].sends.n_done; }
  std::size_t n_received(int peer) const { return peers_[static_cast<std::size_t>(peer)].receives.n_done; }

  bool is_idle() const { return n_open_ == 0 && n_unsent_ == 0; }

  // The peers with unfinished transfers.
  std::vector<int> awaited() const;

  // Writes and reads as many bytes as the channels allow now. Returns whether any bytes moved.
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
  std::size_t n_unsent_ = 0;  // peers with unsent rounded bytes
};

}  // namespace ciranda
