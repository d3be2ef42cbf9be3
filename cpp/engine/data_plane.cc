#include "engine/data_plane.hpp"

#include <utility>

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

}  // namespace

DataPlane::DataPlane(Mesh& mesh, InFlight& in_flight, const NativeOptions& options)
    : mesh_(mesh), in_flight_(in_flight), backend_(mesh, options) {}

void DataPlane::enqueue(Participant::Action action) {
  if (auto* failed = std::get_if<Participant::Fail>(&action)) {
    for (const Participant::Ticket ticket : failed->tickets) in_flight_.complete(ticket, failed->status);
    queue_.emplace_back();  // its place in the order
    return;
  }
  auto& to_execute = std::get<Participant::Execute>(action);
  for (const Participant::Ready& ready : to_execute.requests) in_flight_.begin(ready.ticket);
  queue_.push_back(std::move(to_execute));
}

Result<bool> DataPlane::step() {
  if (queue_.empty()) return false;
  if (!has_begun_) {
    if (Status status = begin(); !status.ok()) return status;
    has_begun_ = true;
  }
  if (running_) {
    const Progress progress = running_->step();
    if (progress == Progress::kStuck) return false;
    if (progress == Progress::kMoved) return true;
    running_.reset();
    plans_.pop_front();
  }
  while (!running_ && !plans_.empty()) {
    running_ = backend_.start(plans_.front());
    if (!running_) plans_.pop_front();
  }
  if (!running_) finish();
  return true;
}

Status DataPlane::begin() {
  const Participant::Execute& entry = queue_.front();
  if (entry.requests.empty()) return Status::ok_status();
  const Signature& signature = in_flight_.at(entry.requests.front().ticket).request.signature;
  switch (signature.collective) {
    case Collective::kBarrier: break;  // that all ranks were ready was the barrier
    case Collective::kAllreduce: {
      std::vector<const Request*> requests;
      for (const Participant::Ready& ready : entry.requests) requests.push_back(&in_flight_.at(ready.ticket).request);
      for (Plan& plan : plan_allreduce(requests)) plans_.push_back(std::move(plan));
      break;
    }
    case Collective::kBroadcast:
      for (const Participant::Ready& ready : entry.requests) {
        plans_.push_back(plan_broadcast(in_flight_.at(ready.ticket).request));
      }
      break;
    case Collective::kAllgather:
      for (const Participant::Ready& ready : entry.requests) {
        Result<Plan> plan = plan_gather(ready);
        if (!plan.ok()) return plan.status();
        plans_.push_back(std::move(plan).value());
      }
      break;
  }
  return Status::ok_status();
}

Result<Plan> DataPlane::plan_gather(const Participant::Ready& ready) {
  InFlight::Entry& entry = in_flight_.at(ready.ticket);
  if (!ready.first_dims || !fits(*ready.first_dims, entry.request, mesh_)) {
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
      return Status::internal("rank " + std::to_string(mesh_.rank()) + " has no memory for the result of allgather '" +
                              entry.request.name + "', " + std::to_string(whole.n_bytes()) + " bytes");
    }
    memory.push_back(outputs.back().data.get());
  }
  entry.operation->set_outputs(std::move(outputs));
  return plan_allgather(entry.request, *ready.first_dims, memory);
}

void DataPlane::finish() {
  const Participant::Execute done = std::move(queue_.front());
  queue_.pop_front();
  has_begun_ = false;
  ++n_executed_;
  for (const Participant::Ready& ready : done.requests) in_flight_.complete(ready.ticket, Status::ok_status());
}

void DataPlane::give_up_from(std::uint64_t log_index, const Status& status) {
  while (!queue_.empty() && n_executed_ + queue_.size() > log_index) {
    const Participant::Execute entry = std::move(queue_.back());
    if (queue_.size() == 1) {
      running_.reset();
      plans_.clear();
      has_begun_ = false;
    }
    queue_.pop_back();
    for (const Participant::Ready& ready : entry.requests) in_flight_.complete(ready.ticket, status);
  }
}

std::vector<int> DataPlane::awaited() const { return running_ ? running_->awaited() : std::vector<int>{}; }

std::string DataPlane::describe_current() const {
  const Participant::Execute& entry = queue_.front();
  if (entry.requests.empty()) return "nothing";
  const Request& request = in_flight_.at(entry.requests.front().ticket).request;
  std::string text = std::string(to_string(request.signature.collective)) + " '" + request.name + "'";
  if (entry.requests.size() > 1) text += " and " + std::to_string(entry.requests.size() - 1) + " more";
  return text;
}

}  // namespace ciranda
