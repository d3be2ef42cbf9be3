// Allreduce and reduce. Adasum and weighted averages have files of their own; Adasum of one rank is a sum.
#include <vector>

#include "execute/collectives/functions.hpp"

namespace ciranda {

Result<Work> reduce_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const std::vector<const Request*> requests = requests_of(entry, in_flight);
  const Signature& signature = requests.front()->signature;
  const bool is_adasum = signature.op == ReduceOp::kAdasum;
  if (is_adasum && mesh.size() > 1) return adasum_work(entry, in_flight, mesh);
  if (signature.is_weighted) return weighted_work(entry, in_flight, mesh);
  Work work{plan_reduction(requests), nullptr};
  for (Plan& plan : work.plans) {
    if (is_adasum) plan.op = ReduceOp::kSum;
  }
  if (!info(signature.collective).has_root) return work;
  const int root = root_member(signature, mesh);
  for (Plan& plan : work.plans) {
    plan.receivers = {root};
    if (root != mesh.rank()) plan.output = {};
  }
  return work;
}

void reduce_at_hand(const DirectTensor& tensor, std::size_t /*self*/, std::span<const std::byte*> contributed,
                    std::byte* output) {
  kernels::reduce(tensor.reduction, contributed, output, tensor.count);
}

}  // namespace ciranda
