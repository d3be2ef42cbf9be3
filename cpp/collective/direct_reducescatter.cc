#include <algorithm>
#include <array>
#include <vector>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/rounding.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kDepth = 2;  // blocks in flight

class DirectReducescatter final : public RunningCollective {
 public:
  explicit DirectReducescatter(const Launch& launch)
      : self_(launch.mesh.rank()),
        plan_(launch.plan),
        contributors_(plan_.contributors_of(launch.mesh.size())),
        block_bytes_(launch.channel_segment_bytes),
        n_blocks_(divide_up(plan_.output.n_bytes(), block_bytes_)),
        transfers_(launch.mesh),
        inputs_(contributors_.size()) {
    const std::size_t n_bytes = block_range(0).n_bytes;
    std::byte* memory = launch.scratch.take(kDepth * contributors_.size() * n_bytes).data();
    for (Stage& stage : stages_) {
      for (std::size_t i = 0; i < contributors_.size(); ++i, memory += n_bytes) {
        stage.arrived.emplace_back(memory, n_bytes);
        stage.pieces.emplace_back(memory, n_bytes);
      }
    }
    for (int peer = 0; peer < launch.mesh.size() && plan_.is_contributor(self_); ++peer) {
      if (peer != self_) transfers_.send(peer, plan_.input_for(peer), 0, plan_.input_for(peer).n_bytes());
    }
    for (std::size_t block = 0; block < std::min(kDepth, n_blocks_); ++block) receive(block);
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (n_reduced_ < n_blocks_ && has_arrived(n_reduced_)) {
      reduce(n_reduced_++);
      if (n_reduced_ - 1 + kDepth < n_blocks_) receive(n_reduced_ - 1 + kDepth);
      moved = true;
    }
    if (n_reduced_ == n_blocks_ && transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  // Does not name ranks that only fail to take data: they may be waiting for others themselves.
  std::vector<int> awaited() const override {
    std::vector<int> ranks;
    for (const int rank : contributors_) {
      if (n_reduced_ < n_blocks_ && is_lacking(rank, n_reduced_)) ranks.push_back(rank);
    }
    return ranks.empty() ? transfers_.awaited() : ranks;
  }

 private:
  struct Stage {
    std::vector<std::span<std::byte>> arrived;  // by contributor
    std::vector<OutputPieces> pieces;
  };

  Stage& stage(std::size_t block) { return stages_[block % kDepth]; }

  Slice block_range(std::size_t block) const { return block_of(plan_.output.n_bytes(), block_bytes_, block); }

  void receive(std::size_t block) {
    for (std::size_t i = 0; i < contributors_.size(); ++i) {
      if (contributors_[i] == self_) continue;
      transfers_.receive(contributors_[i], stage(block).pieces[i], 0, block_range(block).n_bytes);
    }
  }

  bool is_lacking(int rank, std::size_t block) const { return rank != self_ && transfers_.n_received(rank) <= block; }
  bool has_arrived(std::size_t block) const {
    return std::none_of(contributors_.begin(), contributors_.end(), [&](int rank) { return is_lacking(rank, block); });
  }

  void reduce(std::size_t block) {
    const Slice range = block_range(block);
    Stage& at = stage(block);
    for (std::size_t i = 0; i < contributors_.size(); ++i) {
      const auto arrived = at.arrived[i].first(range.n_bytes);
      inputs_[i] = contributors_[i] == self_ ? contiguous_or_gathered(plan_.input_for(self_), range.offset, arrived)
                                             : arrived.data();
    }
    reduce_pieces(plan_, inputs_, plan_.output, range);
  }

  int self_;
  const Plan& plan_;
  std::vector<int> contributors_;
  std::size_t block_bytes_;
  std::size_t n_blocks_;
  PairTransfers transfers_;
  std::array<Stage, kDepth> stages_;
  std::vector<const std::byte*> inputs_;
  std::size_t n_reduced_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_reducescatter(const Launch& launch) {
  return std::make_unique<DirectReducescatter>(launch);
}

}  // namespace ciranda
