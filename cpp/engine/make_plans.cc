#include "engine/make_plans.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adasum_work.hpp"
#include "engine/outputs.hpp"
#include "engine/split_exchange.hpp"
#include "engine/weighted_average.hpp"

namespace ciranda {
namespace {

// Whether the first dimensions of a gather, which came over the network, can be believed as to memory: one a rank, this
// rank's own as it asked, and all together no more than a tensor may have.
bool fits(const FirstDims& first_dims, const Request& request, const Mesh& mesh) {
  Signature whole = request.signature;
  if (first_dims.size() != whole.tensors.size()) return false;
  for (std::size_t i = 0; i < first_dims.size(); ++i) {
    if (first_dims[i].size() != static_cast<std::size_t>(mesh.size())) return false;
    std::int64_t& rows = whole.tensors[i].shape.front();
    if (first_dims[i][static_cast<std::size_t>(mesh.rank())] != rows) return false;
    const auto sum = sum_of_rows(first_dims[i]);
    if (!sum) return false;
    rows = *sum;
  }
  if (info(whole.collective).has_root) whole.root = root_member(whole, mesh);
  return validate(request.name, whole, mesh.size()).ok();
}

Result<Work> one_plan(Result<Plan> plan) {
  if (!plan.ok()) return plan.status();
  Work work;
  work.plans.push_back(std::move(plan).value());
  return work;
}

Result<Work> many_plans(std::vector<Plan> plans) {
  Work work;
  work.plans = std::move(plans);
  return work;
}

Result<Plan> gather(const Participant::Ready& ready, InFlight& in_flight, const Mesh& mesh) {
  const InFlight::Entry& entry = in_flight.at(ready.ticket);
  const Request& request = entry.request;
  if (!ready.first_dims || !fits(*ready.first_dims, request, mesh)) {
    return Status::internal("the log's first dimensions for " + std::string(to_string(request.signature.collective)) +
                            " '" + request.name + "' are not those of its ranks");
  }
  const bool has_root = info(request.signature.collective).has_root;
  const int root = root_member(request.signature, mesh);
  Result<Outputs> outputs = Outputs{};
  if (!has_root || root == mesh.rank()) {
    outputs = outputs_of_gather(request, *ready.first_dims, mesh, in_flight.output_memory());
  }
  if (!outputs.ok()) return outputs.status();
  Plan plan = plan_gather(request, *ready.first_dims, outputs.value().memory);
  if (has_root) plan.receivers = {root};
  entry.operation->set_outputs(std::move(outputs).value().buffers);
  return plan;
}

Result<Work> reducescatter(const Participant::Ready& ready, InFlight& in_flight, const Mesh& mesh) {
  const InFlight::Entry& entry = in_flight.at(ready.ticket);
  Result<Outputs> outputs = outputs_of_reducescatter(entry.request, mesh, in_flight.output_memory());
  if (!outputs.ok()) return outputs.status();
  entry.operation->set_outputs(std::move(outputs.value().buffers));
  return many_plans(plan_reducescatter(entry.request, mesh.size(), mesh.rank(), outputs.value().memory));
}

// All send each other equal parts of as many rows, into memory that is there: nothing must be told before.
Result<Work> even_exchange(const InFlight::Entry& entry) {
  const Request& request = entry.request;
  if (!request.refusal.ok()) return request.refusal;
  Outputs outputs = outputs_of_even_exchange(request);
  std::size_t longest_bytes = 0;
  for (std::size_t i = 0; i < request.splits.size(); ++i) {
    longest_bytes += static_cast<std::size_t>(request.splits[i].front()) * request.signature.tensors[i].row_bytes();
  }
  entry.operation->set_outputs(std::move(outputs.buffers));
  const FirstDims rows(request.splits.begin(), request.splits.end());
  return one_plan(plan_exchange(request, rows, rows, outputs.memory, longest_bytes));
}

Result<Work> reduction(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  std::vector<const Request*> requests;
  for (const Participant::Ready& ready : entry.requests) requests.push_back(&in_flight.at(ready.ticket).request);
  const Signature& signature = requests.front()->signature;
  if (signature.op == ReduceOp::kAdasum) return adasum_work(requests, contributors(entry, mesh.size()), mesh);
  if (signature.is_weighted) {
    std::vector<Participant::Ticket> tickets;
    for (const Participant::Ready& ready : entry.requests) tickets.push_back(ready.ticket);
    return weighted_average(std::move(tickets), contributors(entry, mesh.size()), in_flight, mesh);
  }
  std::vector<Plan> plans = plan_reduction(requests);
  if (!info(signature.collective).has_root) return many_plans(std::move(plans));
  const int root = root_member(signature, mesh);
  for (Plan& plan : plans) {
    plan.receivers = {root};
    if (root != mesh.rank()) plan.output = {};
  }
  return many_plans(std::move(plans));
}

Result<Work> broadcast(const Request& request, const Mesh& mesh) {
  Plan plan = plan_broadcast(request);
  plan.root = root_member(request.signature, mesh);
  const bool only_sends = request.signature.collective == Collective::kTransfer && plan.root == mesh.rank();
  if (only_sends) plan.output = {};
  return one_plan(std::move(plan));
}

Result<Work> work_for(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const Participant::Ready& first = entry.requests.front();  // the only one, but for reductions
  const InFlight::Entry& at = in_flight.at(first.ticket);
  switch (at.request.signature.collective) {
    case Collective::kBarrier:  // that all ranks were ready was the barrier
    case Collective::kJoin:
    case Collective::kAddProcessSet:
    case Collective::kRemoveProcessSet:
    case Collective::kAddLane: break;
    case Collective::kAllreduce:
    case Collective::kReduce: return reduction(entry, in_flight, mesh);
    case Collective::kReducescatter: return reducescatter(first, in_flight, mesh);
    case Collective::kBroadcast:
    case Collective::kTransfer: return broadcast(at.request, mesh);
    case Collective::kAllgather:
    case Collective::kGather: return one_plan(gather(first, in_flight, mesh));
    case Collective::kAlltoall:
    case Collective::kScatter:
      return keeps_rows(at.request) ? even_exchange(at) : exchange_splits_first(first.ticket, in_flight, mesh);
  }
  return Work{};
}

const std::vector<std::int32_t>& absent(const Participant::Ready& ready) {
  static const std::vector<std::int32_t> nobody;
  return ready.absence ? ready.absence->absent : nobody;
}

// What is done for an entry goes by the first of its requests.
Status check_that_they_travel_together(const Participant::Execute& entry, InFlight& in_flight) {
  const Participant::Ready& head = entry.requests.front();
  const Request& first = in_flight.at(head.ticket).request;
  for (std::size_t i = 1; i < entry.requests.size(); ++i) {
    const Request& other = in_flight.at(entry.requests[i].ticket).request;
    const bool is_alike = can_travel_together(first.signature, other.signature);
    if (is_alike && absent(entry.requests[i]) == absent(head)) continue;
    const auto text = [](const Request& one) {
      return std::string(to_string(one.signature.collective)) + " '" + one.name + "'";
    };
    return Status::internal("the log has " + text(first) + " together with " + text(other) +
                            ", which cannot be carried out as one");
  }
  return Status::ok_status();
}

}  // namespace

std::vector<int> contributors(const Participant::Execute& entry, int n_members) {
  std::vector<int> members;
  const auto& absence = entry.requests.front().absence;  // the same for all of an entry
  for (int member = 0; member < n_members; ++member) {
    const bool is_absent =
        absence && std::find(absence->absent.begin(), absence->absent.end(), member) != absence->absent.end();
    if (!is_absent) members.push_back(member);
  }
  return members;
}

Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  if (entry.requests.empty()) return Work{};
  if (Status status = check_that_they_travel_together(entry, in_flight); !status.ok()) return status;
  Result<Work> made = work_for(entry, in_flight, mesh);
  if (!made.ok()) return made.status();
  Work work = std::move(made).value();
  for (Plan& plan : work.plans) plan.n_average = mesh.size();
  return work;
}

}  // namespace ciranda
