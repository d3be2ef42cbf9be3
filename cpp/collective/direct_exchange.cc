#include "collective/direct_exchange.hpp"

#include "collective/copy_pieces.hpp"
#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class DirectExchange final : public RunningCollective {
 public:
  DirectExchange(Mesh& mesh, const Plan& plan) : transfers_(mesh) {
    for (int peer = 0; peer < mesh.size(); ++peer) {
      const OutputPieces& output = plan.output_by_rank[static_cast<std::size_t>(peer)];
      if (peer == mesh.rank()) {
        copy_pieces(plan.input_for(peer), output);
        continue;
      }
      transfers_.receive(peer, output, 0, output.n_bytes());
      if (plan.is_receiver(peer)) transfers_.send(peer, plan.input_for(peer), 0, plan.input_for(peer).n_bytes());
    }
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

std::unique_ptr<RunningCollective> direct_exchange(Mesh& mesh, const Plan& plan) {
  return std::make_unique<DirectExchange>(mesh, plan);
}

}  // namespace ciranda
