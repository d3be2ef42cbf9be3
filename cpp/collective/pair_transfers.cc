#include "collective/pair_transfers.hpp"

#include <algorithm>

namespace ciranda {

void PairTransfers::send(int peer, const InputPieces& pieces, std::size_t offset, std::size_t n_bytes) {
  add(peers_[static_cast<std::size_t>(peer)].sends, pieces, offset, n_bytes);
}

void PairTransfers::receive(int peer, const OutputPieces& pieces, std::size_t offset, std::size_t n_bytes) {
  add(peers_[static_cast<std::size_t>(peer)].receives, pieces, offset, n_bytes);
}

template <typename Pieces>
void PairTransfers::add(Queue<Pieces>& queue, const Pieces& pieces, std::size_t offset, std::size_t n_bytes) {
  if (n_bytes == 0 && queue.open.empty()) {
    ++queue.n_done;
    return;
  }
  queue.open.push_back({&pieces, offset, n_bytes});
  ++n_open_;
}

template <typename Pieces, typename Move>
bool PairTransfers::advance(Queue<Pieces>& queue, Move move) {
  bool moved = false;
  while (!queue.open.empty()) {
    auto& transfer = queue.open.front();
    while (transfer.n_bytes > 0) {
      const auto piece = transfer.pieces->at(transfer.offset);
      const std::size_t n = move(piece.first(std::min(piece.size(), transfer.n_bytes)));
      if (n == 0) return moved;
      moved = true;
      transfer.offset += n;
      transfer.n_bytes -= n;
    }
    queue.open.pop_front();
    ++queue.n_done;
    --n_open_;
    moved = true;
  }
  return moved;
}

std::vector<int> PairTransfers::awaited() const {
  std::vector<int> ranks;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const bool is_idle = peers_[peer].sends.open.empty() && peers_[peer].receives.open.empty();
    if (!is_idle) ranks.push_back(static_cast<int>(peer));
  }
  return ranks;
}

bool PairTransfers::step() {
  bool moved = false;
  for (int distance = 1; distance < mesh_.size(); ++distance) {  // begin behind oneself: not all at the same peer
    const int peer = (mesh_.rank() + distance) % mesh_.size();
    Peer& queues = peers_[static_cast<std::size_t>(peer)];
    if (queues.sends.open.empty() && queues.receives.open.empty()) continue;
    Channel& channel = mesh_.data(peer);
    moved |= advance(queues.sends, [&](std::span<const std::byte> bytes) { return channel.write_some(bytes); });
    moved |= advance(queues.receives, [&](std::span<std::byte> bytes) { return channel.read_some(bytes); });
  }
  return moved;
}

}  // namespace ciranda
