#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class DirectExchange final : public RunningCollective {
 public:
  explicit DirectExchange(const Launch& launch) : rank_(launch.mesh.rank()), transfers_(launch.mesh) {
    const Plan& plan = launch.plan;
    for (int peer = 0; peer < launch.mesh.size(); ++peer) {
      const OutputPieces& output = plan.output_by_rank[static_cast<std::size_t>(peer)];
      const InputPieces& input = plan.input_for(peer);
      if (peer == rank_) {
        copy_pieces(input, output);
        continue;
      }
      transfers_.receive(peer, output, 0, output.n_bytes());
      if (!plan.is_receiver(peer)) continue;
      transfers_.send(peer, safe(plan, input, output), 0, input.n_bytes());
    }
  }

  Progress step() override {
    const bool moved = transfers_.step();
    if (transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  // The data for a peer, in memory that no arriving data overwrites before it is sent.
  const InputPieces& safe(const Plan& plan, const InputPieces& input, const OutputPieces& output) {
    if (!plan.input_by_rank.empty()) return share_memory(input, output) ? kept(input) : input;
    // In an allgather, the first rank's rows may be received into the memory of the input.
    if (plan.output_by_rank.empty() || !share_memory(input, plan.output_by_rank.front())) return input;
    return own_rows_of_result(plan);
  }

  // In a collective in place, a rank's outgoing and incoming data are at the same addresses, or do not overlap.
  static bool share_memory(const InputPieces& input, const OutputPieces& output) {
    const auto inputs = input.pieces();
    const auto outputs = output.pieces();
    for (std::size_t i = 0; i < std::min(inputs.size(), outputs.size()); ++i) {
      if (inputs[i].data() == outputs[i].data()) return true;
    }
    return false;
  }

  // Copies the input, because the other rank's bytes may arrive before these are sent.
  const InputPieces& kept(const InputPieces& input) {
    std::vector<std::byte>& bytes = kept_.emplace_back(input.n_bytes());
    gather(input, 0, bytes);
    return kept_pieces_.emplace_back(bytes.data(), bytes.size());
  }

  // This rank's rows of the result, into which the input is copied before any data is received.
  const InputPieces& own_rows_of_result(const Plan& plan) {
    if (own_rows_.n_bytes() > 0) return own_rows_;
    const OutputPieces& own = plan.output_by_rank[static_cast<std::size_t>(rank_)];
    for (const std::span<std::byte> piece : own.pieces()) own_rows_.add(piece.data(), piece.size());
    return own_rows_;
  }

  int rank_;
  InputPieces own_rows_;
  std::deque<std::vector<std::byte>> kept_;
  std::deque<InputPieces> kept_pieces_;
  PairTransfers transfers_;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_exchange(const Launch& launch) {
  return std::make_unique<DirectExchange>(launch);
}

}  // namespace ciranda
