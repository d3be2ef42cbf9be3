#include <algorithm>
#include <utility>

#include "collective/broadcast_tree.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class TreeBroadcast final : public RunningCollective {
 public:
  TreeBroadcast(const Launch& launch, TreePosition position, std::size_t segment_bytes)
      : position_(std::move(position)),
        n_bytes_(launch.plan.n_bytes),
        segment_bytes_(segment_bytes),
        transfers_(launch.mesh) {
    const Plan& plan = launch.plan;
    if (position_.parent < 0) {
      pass_on(plan.input, 0, n_bytes_);
      copy_pieces(plan.input, plan.output);
      return;
    }
    if (!position_.children.empty()) {
      for (const auto& piece : plan.output.pieces()) arrived_.add(piece.data(), piece.size());
    }
    for (std::size_t at = 0; at < n_bytes_; at += segment_bytes_) {
      transfers_.receive(position_.parent, plan.output, at, segment_at(at));
    }
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (position_.parent >= 0 && n_passed_on_ < transfers_.n_received(position_.parent)) {
      const std::size_t at = n_passed_on_++ * segment_bytes_;
      pass_on(arrived_, at, segment_at(at));
      moved = true;
    }
    if (transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  std::size_t segment_at(std::size_t offset) const { return std::min(segment_bytes_, n_bytes_ - offset); }

  void pass_on(const InputPieces& pieces, std::size_t offset, std::size_t n_bytes) {
    for (const int child : position_.children) transfers_.send(child, pieces, offset, n_bytes);
  }

  TreePosition position_;
  std::size_t n_bytes_;
  std::size_t segment_bytes_;
  PairTransfers transfers_;
  InputPieces arrived_;  // the plan's output, to send from; empty if this rank forwards nothing
  std::size_t n_passed_on_ = 0;
};

// All other ranks are children of the root.
TreePosition position_in_star(const Mesh& mesh, int root) {
  if (mesh.rank() != root) return {root, {}};
  TreePosition position;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank != root) position.children.push_back(rank);
  }
  return position;
}

std::unique_ptr<RunningCollective> along(TreeShape shape, const Launch& launch) {
  return std::make_unique<TreeBroadcast>(
      launch, position_in_tree(shape, launch.hosts, launch.plan.root, launch.mesh.rank()), launch.segment_bytes);
}

}  // namespace

std::unique_ptr<RunningCollective> direct_broadcast_star(const Launch& launch) {
  return std::make_unique<TreeBroadcast>(launch, position_in_star(launch.mesh, launch.plan.root), launch.plan.n_bytes);
}

std::unique_ptr<RunningCollective> direct_broadcast_tree(const Launch& launch) {
  return along(TreeShape::kBinomial, launch);
}

std::unique_ptr<RunningCollective> direct_broadcast_chain(const Launch& launch) {
  return along(TreeShape::kChain, launch);
}

}  // namespace ciranda
