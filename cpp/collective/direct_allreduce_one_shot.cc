#include <vector>

#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/pair_transfers.hpp"
#include "collective/rounding.hpp"

namespace ciranda {
namespace {

class OneShot final : public RunningCollective {
 public:
  explicit OneShot(const Launch& launch)
      : plan_(launch.plan),
        rounding_(launch.rounding),
        contributors_(plan_.contributors_of(launch.mesh.size())),
        transfers_(launch.mesh),
        arrivals_(contributors_.size()) {
    const Mesh& mesh = launch.mesh;
    for (int peer = 0; rounding_.is_of_inputs() && peer < mesh.size(); ++peer) transfers_.enable_rounding(peer);
    if (plan_.is_receiver(mesh.rank())) receive(mesh.rank(), launch.scratch);
    if (!plan_.is_contributor(mesh.rank())) return;
    for (int peer = 0; peer < mesh.size(); ++peer) {
      if (peer != mesh.rank() && plan_.is_receiver(peer)) transfers_.send(peer, plan_.input, 0, plan_.n_bytes);
    }
  }

  Progress step() override {
    const bool moved = transfers_.step();
    if (!transfers_.is_idle()) return moved ? Progress::kMoved : Progress::kStuck;
    reduce_pieces(plan_, inputs_, plan_.output, {0, plan_.output.n_bytes()}, rounding_);
    return Progress::kDone;
  }

  std::vector<int> awaited() const override { return transfers_.awaited(); }

 private:
  // This rank's own input is read in place if it lies in one piece.
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
  Rounding rounding_;
  std::vector<int> contributors_;
  PairTransfers transfers_;
  std::vector<const std::byte*> inputs_;  // by contributor
  std::vector<OutputPieces> arrivals_;
};

}  // namespace

std::unique_ptr<RunningCollective> direct_allreduce_one_shot(const Launch& launch) {
  return std::make_unique<OneShot>(launch);
}

}  // namespace ciranda
