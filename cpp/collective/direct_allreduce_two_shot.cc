#include <array>
#include <vector>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/slices.hpp"
#include "collective/transfer_order.hpp"
#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kDepth = TransferOrder::kDepth;

class TwoShot final : public RunningCollective {
 public:
  explicit TwoShot(const Launch& launch)
      : mesh_(launch.mesh),
        plan_(launch.plan),
        is_rounded_(launch.rounding.is_on()),
        contributors_(plan_.contributors_of(mesh_.size())),
        block_bytes_(launch.segment_bytes * static_cast<std::size_t>(mesh_.size())),
        n_blocks_(divide_up(plan_.n_bytes, block_bytes_)),
        transfers_(mesh_),
        inputs_(contributors_.size()) {
    const std::size_t n_bytes = slice(0, 0).n_bytes;
    const auto n_ranks = static_cast<std::size_t>(mesh_.size());
    std::byte* memory = launch.scratch.take(kDepth * (n_ranks + 1) * n_bytes).data();
    for (Stage& stage : stages_) {
      for (std::size_t i = 0; i < n_ranks; ++i, memory += n_bytes) {
        stage.arrived.emplace_back(memory, n_bytes);
        stage.arrived_pieces.emplace_back(memory, n_bytes);
      }
      stage.result = {memory, n_bytes};
      memory += n_bytes;
    }
    if (is_rounded_) for_peers([&](int peer) { transfers_.enable_rounding(peer); });
    for (std::size_t block = 0; block < std::min(kDepth, n_blocks_); ++block) exchange_slices(block);
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (n_reduced_ < n_blocks_ && has_all_slices(n_reduced_) && is_result_free(n_reduced_)) {
      reduce(n_reduced_);
      exchange_results(n_reduced_);
      ++n_reduced_;
      if (n_reduced_ - 1 + kDepth < n_blocks_) exchange_slices(n_reduced_ - 1 + kDepth);
      moved = true;
    }
    if (n_reduced_ == n_blocks_ && transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  struct Stage {
    std::vector<std::span<std::byte>> arrived;  // this rank's slice of each rank's block
    std::vector<OutputPieces> arrived_pieces;
    std::span<std::byte> result;  // used if the output is in several pieces, or there is none
    InputPieces result_pieces;    // where the result is
  };

  Stage& stage(std::size_t block) { return stages_[block % kDepth]; }

  // The offset is relative to the whole plan.
  Slice slice(std::size_t block, int rank) const {
    return slice_of(block_of(plan_.n_bytes, block_bytes_, block), mesh_.size(), rank);
  }

  // For ranks that contribute or receive nothing, empty transfers are queued, to keep the order of the queues.
  void exchange_slices(std::size_t block) {
    const std::size_t n_own = slice(block, mesh_.rank()).n_bytes;
    for_peers([&](int peer) {
      const Slice theirs = slice(block, peer);
      const bool is_contributed = plan_.is_contributor(peer);
      transfers_.send(peer, plan_.input, theirs.offset, contributes_ ? theirs.n_bytes : 0);
      transfers_.receive(peer, stage(block).arrived_pieces[static_cast<std::size_t>(peer)], 0,
                         is_contributed ? n_own : 0);
    });
  }

  void exchange_results(std::size_t block) {
    const std::size_t n_own = slice(block, mesh_.rank()).n_bytes;
    for_peers([&](int peer) {
      const Slice theirs = slice(block, peer);
      transfers_.send(peer, stage(block).result_pieces, 0, plan_.is_receiver(peer) ? n_own : 0);
      transfers_.receive(peer, plan_.output, theirs.offset, receives_ ? theirs.n_bytes : 0);
    });
  }

  bool has_all_slices(std::size_t block) const {
    return all_peers([&](int peer) { return transfers_.n_received(peer) > TransferOrder::first(block); });
  }
  // True if the channels have taken the results of the block that used this stage before.
  bool is_result_free(std::size_t block) const {
    if (block < kDepth) return true;
    return all_peers(
        [&](int peer) { return transfers_.n_sent(peer) > TransferOrder{n_blocks_}.second(block - kDepth); });
  }

  void reduce(std::size_t block) {
    const Slice own = slice(block, mesh_.rank());
    if (own.n_bytes == 0) return;
    Stage& at = stage(block);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const int rank = contributors_[i];
      const auto arrived = at.arrived[static_cast<std::size_t>(rank)].first(own.n_bytes);
      inputs_[i] = rank == mesh_.rank() ? own_input(own.offset, arrived) : arrived.data();
    }
    const auto in_place = receives_ ? plan_.output.contiguous(own.offset, own.n_bytes) : std::span<std::byte>();
    const auto result = in_place.empty() ? at.result.first(own.n_bytes) : in_place;
    kernels::reduce(plan_, inputs_, result);
    if (is_rounded_) kernels::round_to_bfloat16(result);
    at.result_pieces = InputPieces(result.data(), own.n_bytes);
    if (receives_ && in_place.empty()) scatter(plan_.output, own.offset, result);
  }

  // This rank's input with the same bits that the others use: rounded if they receive it rounded.
  const std::byte* own_input(std::size_t offset, std::span<std::byte> staging) const {
    const std::byte* input = contiguous_or_gathered(plan_.input, offset, staging);
    if (!is_rounded_) return input;
    kernels::round_to_bfloat16(input, staging.data(), staging.size() / sizeof(float));
    return staging.data();
  }

  template <typename Visit>
  void for_peers(Visit visit) const {
    for (int peer = 0; peer < mesh_.size(); ++peer) {
      if (peer != mesh_.rank()) visit(peer);
    }
  }
  template <typename Test>
  bool all_peers(Test test) const {
    for (int peer = 0; peer < mesh_.size(); ++peer) {
      if (peer != mesh_.rank() && !test(peer)) return false;
    }
    return true;
  }

  Mesh& mesh_;
  const Plan& plan_;
  bool is_rounded_;
  std::vector<int> contributors_;
  bool contributes_ = plan_.is_contributor(mesh_.rank());
  bool receives_ = plan_.is_receiver(mesh_.rank());
  std::size_t block_bytes_;
  std::size_t n_blocks_;
  PairTransfers transfers_;
  std::array<Stage, kDepth> stages_;
  std::vector<const std::byte*> inputs_;
  std::size_t n_reduced_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_allreduce_two_shot(const Launch& launch) {
  return std::make_unique<TwoShot>(launch);
}

}  // namespace ciranda
