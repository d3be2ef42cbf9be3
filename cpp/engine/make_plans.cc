#include "engine/make_plans.hpp"

#include <string>
#include <utility>
#include <vector>

namespace ciranda {
namespace {

// Whether the first dimensions of a gather, which came over the network, can be believed as to memory: one a rank, this
// rank's own as it asked, and all together no more than a tensor may have.
bool fits(const Participant::FirstDims& first_dims, const Request& request, const Mesh& mesh) {
  constexpr std::int64_t kMaxRows = std::int64_t{1} << 56;
  Signature whole = request.signature;
  if (first_dims.size() != whole.tensors.size()) return false;
  for (std::size_t i = 0; i < first_dims.size(); ++i) {
    if (first_dims[i].size() != static_cast<std::size_t>(mesh.size())) return false;
    std::int64_t& rows = whole.tensors[i].shape.front();
    if (first_dims[i][static_cast<std::size_t>(mesh.rank())] != rows) return false;
    rows = 0;
    for (const std::int64_t each : first_dims[i]) {
      if (each < 0 || each > kMaxRows - rows) return false;
      rows += each;
    }
  }
  return validate(request.name, whole, mesh.size()).ok();
}

Result<Plan> plan_gather(const Participant::Ready& ready, InFlight& in_flight, const Mesh& mesh) {
  InFlight::Entry& entry = in_flight.at(ready.ticket);
  if (!ready.first_dims || !fits(*ready.first_dims, entry.request, mesh)) {
    return Status::internal("the log's first dimensions for allgather '" + entry.request.name +
                            "' are not those of its ranks");
  }
  std::vector<OutputBuffer> outputs;
  std::vector<std::byte*> memory;
  for (std::size_t i = 0; i < entry.request.signature.tensors.size(); ++i) {
    TensorSignature whole = entry.request.signature.tensors[i];
    whole.shape.front() = 0;
    for (const std::int64_t rows : (*ready.first_dims)[i]) whole.shape.front() += rows;
    outputs.push_back(allocate_output(whole.n_bytes(), whole.shape));
    if (!outputs.back().data) {
      return Status::internal("rank " + std::to_string(mesh.rank()) + " has no memory for the result of allgather '" +
                              entry.request.name + "', " + std::to_string(whole.n_bytes()) + " bytes");
    }
    memory.push_back(outputs.back().data.get());
  }
  entry.operation->set_outputs(std::move(outputs));
  return plan_allgather(entry.request, *ready.first_dims, memory);
}

// Roots are named by their rank in the world. REQUIRES: -1 or a rank of the mesh.
int member_of(int world_rank, const Mesh& mesh) {
  int member = mesh.size() - 1;
  while (member >= 0 && mesh.peer(member).rank != world_rank) --member;
  return member;
}

}  // namespace

Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  Work work;
  if (entry.requests.empty()) return work;
  switch (in_flight.at(entry.requests.front().ticket).request.signature.collective) {
    case Collective::kBarrier:  // that all ranks were ready was the barrier
    case Collective::kJoin:
    case Collective::kAddProcessSet:
    case Collective::kRemoveProcessSet: break;
    case Collective::kAllreduce: {
      std::vector<const Request*> requests;
      for (const Participant::Ready& ready : entry.requests) requests.push_back(&in_flight.at(ready.ticket).request);
      for (Plan& plan : plan_allreduce(requests)) work.plans.push_back(std::move(plan));
      break;
    }
    case Collective::kBroadcast:
    case Collective::kTransfer:
      for (const Participant::Ready& ready : entry.requests) {
        work.plans.push_back(plan_broadcast(in_flight.at(ready.ticket).request));
      }
      break;
    case Collective::kReducescatter:
    case Collective::kAlltoall:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter: break;
    case Collective::kAllgather:
      for (const Participant::Ready& ready : entry.requests) {
        Result<Plan> plan = plan_gather(ready, in_flight, mesh);
        if (!plan.ok()) return plan.status();
        work.plans.push_back(std::move(plan).value());
      }
      break;
  }
  for (Plan& plan : work.plans) {
    plan.n_average = mesh.size();
    plan.root = member_of(plan.root, mesh);
  }
  return work;
}

}  // namespace ciranda
