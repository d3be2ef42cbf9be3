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
    if (!peers_[peer].is_idle()) ranks.push_back(static_cast<int>(peer));
  }
  return ranks;
}

bool PairTransfers::step() {
  bool moved = false;
  for (int distance = 1; distance < mesh_.size(); ++distance) {  // rotated: not all begin with the same peer
    const int peer = (mesh_.rank() + distance) % mesh_.size();
    Peer& queues = peers_[static_cast<std::size_t>(peer)];
    if (queues.is_idle()) continue;
    Channel& channel = mesh_.data(peer);
    moved |= queues.rounded ? step_rounded(queues, channel) : step(queues, channel);
  }
  return moved;
}

bool PairTransfers::step(Peer& peer, Channel& channel) {
  const bool sent = advance(peer.sends, [&](std::span<const std::byte> bytes) { return channel.write_some(bytes); });
  return advance(peer.receives, [&](std::span<std::byte> bytes) { return channel.read_some(bytes); }) || sent;
}

bool PairTransfers::step_rounded(Peer& peer, Channel& channel) {
  RoundedStream& stream = *peer.rounded;
  const bool had_unsent = stream.has_unsent();
  bool moved = had_unsent && stream.flush(channel);
  moved |= advance(peer.sends, [&](std::span<const std::byte> each) { return stream.write_some(channel, each); });
  moved |= advance(peer.receives, [&](std::span<std::byte> each) { return stream.read_some(channel, each); });
  if (had_unsent != stream.has_unsent()) n_unsent_ += had_unsent ? std::size_t{0} - 1 : 1;
  return moved;
}

}  // namespace ciranda
