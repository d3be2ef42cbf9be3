#include "collective/tree_broadcast.hpp"

#include <algorithm>

#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class TreeBroadcast final : public RunningCollective {
 public:
  TreeBroadcast(Mesh& mesh, const Plan& plan, TreePlace place, std::size_t segment_bytes)
      : place_(std::move(place)), n_bytes_(plan.n_bytes), segment_bytes_(segment_bytes), transfers_(mesh) {
    if (place_.parent < 0) {
      pass_on(plan.input, 0, n_bytes_);
      copy_pieces(plan.input, plan.output);
      return;
    }
    for (const auto& piece : plan.output.pieces()) arrived_.add(piece.data(), piece.size());
    for (std::size_t at = 0; at < n_bytes_; at += segment_bytes_) {
      transfers_.receive(place_.parent, plan.output, at, segment_at(at));
    }
  }

  Progress step() override {
    bool moved = transfers_.step();
    while (place_.parent >= 0 && n_passed_on_ < transfers_.n_received(place_.parent)) {
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
    for (const int child : place_.children) transfers_.send(child, pieces, offset, n_bytes);
  }

  TreePlace place_;
  std::size_t n_bytes_;
  std::size_t segment_bytes_;
  PairTransfers transfers_;
  InputPieces arrived_;  // the plan's output, to send from
  std::size_t n_passed_on_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> tree_broadcast(Mesh& mesh, const Plan& plan, const TreePlace& place,
                                                  std::size_t segment_bytes) {
  return std::make_unique<TreeBroadcast>(mesh, plan, place, segment_bytes);
}

}  // namespace ciranda
