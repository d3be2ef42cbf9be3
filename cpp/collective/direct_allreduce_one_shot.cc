#include <vector>

#include "base/round_up.hpp"
#include "collective/direct_allreduce.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/rounding.hpp"

namespace ciranda {
namespace {

class OneShot final : public RunningCollective {
 public:
  OneShot(Mesh& mesh, const Plan& plan, const kernels::Reduction& reduction, Scratch& scratch, const Rounding& rounding)
      : plan_(plan),
        reduction_(reduction),
        rounding_(rounding),
        contributors_(plan.contributors_of(mesh.size())),
        transfers_(mesh),
        arrivals_(contributors_.size()) {
    for (int peer = 0; rounding.is_of_inputs() && peer < mesh.size(); ++peer) transfers_.round_for(peer);
    if (plan.is_receiver(mesh.rank())) receive(mesh.rank(), scratch);
    if (!plan.is_contributor(mesh.rank())) return;
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer != mesh.rank() && plan.is_receiver(peer)) transfers_.send(peer, plan.input, 0, plan.n_bytes);
    }
  }

  Progress step() override {
    const bool moved = transfers_.step();
    if (!transfers_.is_idle()) return moved ? Progress::kMoved : Progress::kStuck;
    reduce_pieces(reduction_, inputs_, plan_.output, {0, plan_.output.n_bytes()}, rounding_);
    return Progress::kDone;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  // The own input is read where it lies, if it lies in one piece.
  void receive(int self, Scratch& scratch) {
    constexpr std::size_t kLine = 64;
    const std::size_t stride = round_up(plan_.n_bytes, kLine);
    const std::span<std::byte> memory = scratch.take(contributors_.size() * stride);
    for (std::size_t i = 0; i < contributors_.size(); ++i) {
      const std::span<std::byte> staging = memory.subspan(i * stride, plan_.n_bytes);
      if (contributors_[i] == self) {
        inputs_.push_back(contiguous_or_gathered(plan_.input, 0, staging));
      } else {
        inputs_.push_back(staging.data());
        arrivals_[i] = OutputPieces(staging.data(), staging.size());
        transfers_.receive(contributors_[i], arrivals_[i], 0, plan_.n_bytes);
      }
    }
  }

  const Plan& plan_;
  kernels::Reduction reduction_;
  Rounding rounding_;
  std::vector<int> contributors_;
  PairTransfers transfers_;
  std::vector<const std::byte*> inputs_;  // by contributor
  std::vector<OutputPieces> arrivals_;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_allreduce_one_shot(Mesh& mesh, const Plan& plan,
                                                             const kernels::Reduction& reduction, Scratch& scratch,
                                                             const Rounding& rounding) {
  return std::make_unique<OneShot>(mesh, plan, reduction, scratch, rounding);
}

}  // namespace ciranda
