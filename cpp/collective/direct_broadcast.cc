#include "collective/direct_broadcast.hpp"

#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class DirectBroadcast final : public RunningCollective {
 public:
  DirectBroadcast(Mesh& mesh, const Plan& plan) : transfers_(mesh) {
    if (mesh.rank() != plan.root) {
      transfers_.receive(plan.root, plan.output, 0, plan.output.n_bytes());
      return;
    }
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer != plan.root) transfers_.send(peer, plan.input, 0, plan.input.n_bytes());
    }
    copy_pieces(plan.input, plan.output);
  }

  Progress step() override {
    const bool moved = transfers_.step();
    if (transfers_.is_idle()) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kStuck;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  PairTransfers transfers_;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_broadcast(Mesh& mesh, const Plan& plan) {
  return std::make_unique<DirectBroadcast>(mesh, plan);
}

}  // namespace ciranda
