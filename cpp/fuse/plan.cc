#include "fuse/plan.hpp"

#include <algorithm>

namespace ciranda {

std::vector<Plan> plan_allreduce(std::span<const Request* const> requests) {
  std::vector<Plan> plans;
  for (const Request* request : requests) {
    const Signature& signature = request->signature;
    for (std::size_t i = 0; i < signature.tensors.size(); ++i) {
      const TensorSignature& tensor = signature.tensors[i];
      auto plan = std::find_if(plans.begin(), plans.end(), [&](const Plan& p) { return p.dtype == tensor.dtype; });
      if (plan == plans.end()) {
        Plan fresh;
        fresh.collective = Collective::kAllreduce;
        fresh.dtype = tensor.dtype;
        fresh.op = signature.op;
        fresh.prescale = signature.prescale;
        fresh.postscale = signature.postscale;
        plan = plans.insert(plans.end(), std::move(fresh));
      }
      plan->input.add(request->memory[i].input, tensor.n_bytes());
      plan->output.add(request->memory[i].output, tensor.n_bytes());
    }
  }
  return plans;
}

Plan plan_broadcast(const Request& request) {
  Plan plan;
  plan.collective = Collective::kBroadcast;
  plan.root = request.signature.root;
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const std::size_t n_bytes = request.signature.tensors[i].n_bytes();
    plan.input.add(request.memory[i].input, n_bytes);
    plan.output.add(request.memory[i].output, n_bytes);
  }
  return plan;
}

Plan plan_allgather(const Request& request, const std::vector<std::vector<std::int64_t>>& first_dims,
                    std::span<std::byte* const> outputs) {
  Plan plan;
  plan.collective = Collective::kAllgather;
  for (std::size_t i = 0; i < request.signature.tensors.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    plan.input.add(request.memory[i].input, tensor.n_bytes());
    std::size_t row_bytes = size_of(tensor.dtype);
    for (std::size_t d = 1; d < tensor.shape.size(); ++d) row_bytes *= static_cast<std::size_t>(tensor.shape[d]);
    plan.output_by_rank.resize(first_dims[i].size());
    std::byte* output = outputs[i];
    for (std::size_t rank = 0; rank < first_dims[i].size(); ++rank) {
      const std::size_t n_bytes = static_cast<std::size_t>(first_dims[i][rank]) * row_bytes;
      plan.output_by_rank[rank].add(output, n_bytes);
      output += n_bytes;
    }
  }
  return plan;
}

}  // namespace ciranda
