#include "agree/ways.hpp"

#include <algorithm>

#include "call/peer_collectives.hpp"

namespace ciranda {
namespace {

constexpr int kMostRanks = 64;  // inputs of one reduction on a GPU

}  // namespace

bool may_go_by_peer(const Signature& signature) {
  if (!may_go_by_peer(signature.collective)) return false;
  return !info(signature.collective).is_reduction || (info(signature.op).is_elementwise && !signature.is_weighted);
}

Way Ways::way_of(const Signature& signature, const std::vector<HomeId>& homes) {
  const bool may_map = options_.shares_memory && options_.size > 1 && options_.size <= kMostRanks;
  // Checksums of results are computed on the host.
  if (!may_map || options_.check_interval != 0 || !may_go_by_peer(signature)) return Way::kStaged;
  if (static_cast<int>(homes.size()) != options_.size || std::ranges::count(homes, kStagedHome) > 0) {
    return Way::kStaged;
  }
  if (homes_.empty()) homes_ = homes;
  return homes == homes_ ? Way::kPeer : Way::kStaged;
}

}  // namespace ciranda
