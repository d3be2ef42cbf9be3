#include "backend/cuda/used_gpus.hpp"

#include <algorithm>
#include <map>

#include "base/list_ranks.hpp"

namespace ciranda::cuda {

std::string advice_on_sharing(const std::vector<UsedGpu>& used, std::size_t own, const std::string& name) {
  std::map<decltype(CUuuid::bytes), std::vector<int>> ranks_on;
  int n_visible = 0;
  for (const UsedGpu& each : used) {
    ranks_on[each.uuid.bytes].push_back(each.rank);
    n_visible = std::max(n_visible, each.n_visible);
  }
  if (ranks_on.size() >= std::min(used.size(), static_cast<std::size_t>(n_visible))) return "";
  const auto shared =
      std::ranges::find_if(used, [&](const UsedGpu& each) { return ranks_on[each.uuid.bytes].size() > 1; });
  const std::vector<int>& sharers = ranks_on[shared->uuid.bytes];
  if (sharers.back() != used[own].rank) return "";
  return list_ranks(sharers) + " have their tensors on one GPU, here " + name + " of " + std::to_string(n_visible) +
         ", and the ranks of this host use " + std::to_string(ranks_on.size()) +
         ". This works, but they share the GPU. If each should have its own, choose it before the first tensor: "
         "torch.cuda.set_device(hvd.local_rank())?";
}

}  // namespace ciranda::cuda
