#include <vector>

#include "collective/direct_allreduce.hpp"
#include "collective/pair_transfers.hpp"

namespace ciranda {
namespace {

class OneShot final : public RunningCollective {
 public:
  OneShot(Mesh& mesh, const Plan& plan, const kernels::Reduction& reduction)
      : plan_(plan),
        reduction_(reduction),
        transfers_(mesh),
        staging_(static_cast<std::size_t>(mesh.size()), std::vector<std::byte>(plan.input.n_bytes())),
        arrivals_(static_cast<std::size_t>(mesh.size())) {
    gather(plan_.input, 0, staging_[static_cast<std::size_t>(mesh.rank())]);
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer == mesh.rank()) continue;
      auto& bytes = staging_[static_cast<std::size_t>(peer)];
      arrivals_[static_cast<std::size_t>(peer)] = OutputPieces(bytes.data(), bytes.size());
      transfers_.receive(peer, arrivals_[static_cast<std::size_t>(peer)], 0, bytes.size());
      transfers_.send(peer, plan_.input, 0, bytes.size());
    }
  }

  Progress step() override {
    const bool moved = transfers_.step();
    if (!transfers_.is_idle()) return moved ? Progress::kMoved : Progress::kStuck;
    std::vector<const std::byte*> inputs(staging_.size());
    plan_.output.for_range(0, plan_.output.n_bytes(), [&](std::span<std::byte> part, std::size_t at) {
      for (std::size_t rank = 0; rank < staging_.size(); ++rank) inputs[rank] = staging_[rank].data() + at;
      kernels::reduce(reduction_, inputs, part.data(), part.size() / size_of(reduction_.dtype));
    });
    return Progress::kDone;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  const Plan& plan_;
  kernels::Reduction reduction_;
  PairTransfers transfers_;
  std::vector<std::vector<std::byte>> staging_;
  std::vector<OutputPieces> arrivals_;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_allreduce_one_shot(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction) {
  return std::make_unique<OneShot>(mesh, plan, reduction);
}

}  // namespace ciranda
