#include "agree/ways.hpp"

#include <algorithm>

#include "call/op_table.hpp"

namespace ciranda {
namespace {

constexpr int kMostRanks = 64;  // inputs of one reduction on a GPU

constexpr bool is_integer_of_nccl(DataType dtype) {
  return dtype == DataType::kInt8 || dtype == DataType::kUInt8 || dtype == DataType::kInt32 ||
         dtype == DataType::kUInt32 || dtype == DataType::kInt64 || dtype == DataType::kUInt64;
}

}  // namespace

bool may_go_by_peer(const Signature& signature) {
  if (!info(signature.collective).has_tensors) return false;
  return !info(signature.collective).is_reduction || (info(signature.op).is_elementwise && !signature.is_weighted);
}

bool may_go_by_nccl(const Signature& signature) {
  if (signature.collective != Collective::kAllreduce || signature.is_weighted) return false;
  const bool has_factors = signature.prescale != 1.0 || signature.postscale != 1.0;
  const bool is_average = signature.op == ReduceOp::kAverage;
  const bool adds = is_average || signature.op == ReduceOp::kSum || signature.op == ReduceOp::kProduct;
  const bool is_extreme = signature.op == ReduceOp::kMin || signature.op == ReduceOp::kMax;
  return std::ranges::all_of(signature.tensors, [&](const TensorSignature& tensor) {
    const bool is_floating = info(tensor.dtype).type_class == TypeClass::kFloating;
    if (is_floating) return adds;
    return is_integer_of_nccl(tensor.dtype) && !has_factors && !is_average && (adds || is_extreme);
  });
}

Way Ways::fastest(const Signature& signature) const {
  if (options_.goes_by_nccl) return options_.size > 1 && may_go_by_nccl(signature) ? Way::kNccl : Way::kStaged;
  const bool may_map = options_.shares_memory && options_.size > 1 && options_.size <= kMostRanks;
  return may_map && may_go_by_peer(signature) ? Way::kPeer : Way::kStaged;
}

Way Ways::way_of(const Signature& signature, const std::vector<HomeId>& homes) {
  const Way way = fastest(signature);
  // Checksums of results are computed on the host.
  if (!is_on_device(way) || options_.check_interval != 0) return Way::kStaged;
  if (static_cast<int>(homes.size()) != options_.size || std::ranges::count(homes, kStagedHome) > 0) {
    return Way::kStaged;
  }
  if (homes_.empty()) homes_ = homes;
  return homes == homes_ ? way : Way::kStaged;
}

}  // namespace ciranda
