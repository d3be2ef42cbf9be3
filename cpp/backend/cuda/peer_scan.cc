#include "backend/cuda/peer_scan.hpp"

#include <array>
#include <utility>

namespace ciranda::cuda {

std::span<const PeerStage> PeerScan::stages() const {
  static constexpr std::array kStages{kPack, Stage{.does = Does::kReduce, .awaits = Counter::kPacked}};
  return kStages;
}

PeerStream::Work PeerScan::work(Does what) const {
  if (what == Does::kPack) return pack_input();
  std::vector<const std::byte*> inputs;
  for (int member = 0; member <= self(); ++member) inputs.push_back(slot(member));
  return reduce_to_output(inputs, offset(), n_bytes());
}

}  // namespace ciranda::cuda
