#include "collective/direct_allgather.hpp"

#include "collective/copy_pieces.hpp"
#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class DirectAllgather final : public RunningCollective {
 public:
  DirectAllgather(Mesh& mesh, const Plan& plan) : transfers_(mesh) {
    for (int peer = 0; peer < mesh.size(); ++peer) {
      const OutputPieces& output = plan.output_by_rank[static_cast<std::size_t>(peer)];
      if (peer == mesh.rank()) {
        copy_pieces(plan.input, output);
      } else {
        transfers_.send(peer, plan.input, 0, plan.input.n_bytes());
        transfers_.receive(peer, output, 0, output.n_bytes());
      }
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

std::unique_ptr<RunningCollective> direct_allgather(Mesh& mesh, const Plan& plan) {
  return std::make_unique<DirectAllgather>(mesh, plan);
}

}  // namespace ciranda
