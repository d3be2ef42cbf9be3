#include "agree/ways.hpp"

#include <algorithm>

#include "call/nccl_collectives.hpp"
#include "call/op_table.hpp"

namespace ciranda {
namespace {

constexpr int kMostRanks = 64;  // inputs of one reduction on a GPU

bool is_reduced_elementwise(const Signature& signature) {
  return !info(signature.collective).is_reduction || (info(signature.op).is_elementwise && !signature.is_weighted);
}

bool is_reduced_by_nccl(const Signature& signature) {
  const bool has_factors = signature.prescale != 1.0 || signature.postscale != 1.0;
  return !info(signature.collective).is_reduction ||
         std::ranges::all_of(signature.tensors, [&](const TensorSignature& tensor) {
           return is_reduced_by_nccl(tensor.dtype, signature.op, has_factors);
         });
}

bool are_on_host(const std::vector<HomeId>& homes) {
  return std::ranges::all_of(homes, [](HomeId home) { return home == kHostHome; });
}

}  // namespace

bool may_go_by_peer(const Signature& signature, std::size_t n_members) {
  return info(signature.collective).has_tensors && (n_members == 1 || is_reduced_elementwise(signature));
}

bool may_go_by_nccl(const Signature& signature) {
  return may_go_by_nccl(signature.collective) && is_reduced_elementwise(signature);
}

Way Ways::fastest(const Signature& signature) const {
  if (options_.goes_by_nccl && !is_alone()) {
    const bool has_few = options_.size <= kMostRanks || (options_.adds_by_nccl && is_reduced_by_nccl(signature));
    const bool may = may_go_by_nccl(signature);
    return may && (has_few || !info(signature.collective).is_reduction) ? Way::kNccl : Way::kStaged;
  }
  const bool may_map = is_alone() || (options_.shares_memory && options_.size <= kMostRanks);
  const auto n_members = static_cast<std::size_t>(options_.size);
  return may_map && may_go_by_peer(signature, n_members) ? Way::kPeer : Way::kStaged;
}

Way Ways::way_of(const Signature& signature, const std::vector<HomeId>& homes) {
  if (are_on_host(homes)) return Way::kHost;
  if (!homes.empty() && is_captured(homes.front())) {
    std::vector<HomeId> without = homes;
    std::ranges::transform(without, without.begin(), without_capture);
    const Way way = way_of(signature, without);
    return way == Way::kNccl ? Way::kGraph : way;
  }
  const Way way = fastest(signature);
  if (!is_on_device(way)) return Way::kStaged;
  if (static_cast<int>(homes.size()) != options_.size || !std::ranges::all_of(homes, may_be_on_device)) {
    return Way::kStaged;
  }
  if (is_alone()) return way;
  if (homes_.empty()) homes_ = homes;
  return homes == homes_ ? way : Way::kStaged;
}

// Members that have joined contribute zeros, so only sums by NCCL itself go by it.
Way Ways::way_without(const std::vector<std::int32_t>& absent, const Signature& signature, std::vector<HomeId> homes) {
  if (are_on_host(homes)) return Way::kHost;
  const bool is_sum = signature.op == ReduceOp::kSum || signature.op == ReduceOp::kAverage;
  const bool may = options_.goes_by_nccl && options_.adds_by_nccl && is_sum && is_reduced_by_nccl(signature);
  if (!may || signature.collective != Collective::kAllreduce || homes_.size() != homes.size()) return Way::kStaged;
  for (const std::int32_t member : absent) {
    homes[static_cast<std::size_t>(member)] = homes_[static_cast<std::size_t>(member)];
  }
  return way_of(signature, homes);
}

}  // namespace ciranda
