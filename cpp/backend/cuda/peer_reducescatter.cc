#include "backend/cuda/peer_reducescatter.hpp"

#include <array>
#include <utility>

namespace ciranda::cuda {

std::span<const PeerStage> PeerReducescatter::stages() const {
  static constexpr std::array kStages{kPack, Stage{.does = Does::kReduce, .awaits = Counter::kPacked}};
  return kStages;
}

PeerStream::Work PeerReducescatter::work(Does what) const {
  if (what == Does::kPack) {
    Copies copies;
    for (int member = 0; member < n_members(); ++member) add_share(copies, member);
    return copy(std::move(copies));
  }
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < n_members(); ++member) inputs.push_back(share_of_slot(member, self()));
  return reduce_to_output(inputs, offset(), n_bytes_of(plan().output.n_bytes()));
}

}  // namespace ciranda::cuda
