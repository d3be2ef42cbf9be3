#include "execute/staged.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ciranda {
namespace {

// --- The number of bytes of a tensor's memory that a call reads, and that it writes, on this rank. `ranks`: those of
// --- its process set, ascending. `rank`: this rank, in the world. REQUIRES, for both: the request is valid, and its
// --- splits are settled.

std::size_t n_bytes_read(const Request& request, std::size_t tensor, int rank) {
  const Signature& signature = request.signature;
  const CollectiveInfo& row = info(signature.collective);
  if (row.takes_splits) return sum_of(request.splits[tensor]) * signature.tensors[tensor].row_bytes();
  const bool is_from_root = row.has_root && row.is_same_on_all;
  return is_from_root && signature.root != rank ? 0 : signature.tensors[tensor].n_bytes();
}

// The largest possible number, if the output is used only when the result fits. 0 if the caller's output is not used.
std::size_t n_bytes_written(const Request& request, std::size_t tensor, std::span<const int> ranks, int rank) {
  const Signature& signature = request.signature;
  const TensorSignature& own = signature.tensors[tensor];
  const CollectiveInfo& row = info(signature.collective);
  if (!row.allocates_output) return has_result(signature, rank) ? own.n_bytes() : 0;
  if (keeps_rows(request)) return n_bytes_read(request, tensor, rank);
  if (row.first_dim_may_differ) return request.has_room_for_all && !row.has_root ? ranks.size() * own.n_bytes() : 0;
  if (!row.is_reduction) return 0;
  const auto member = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const auto rows = even_splits(own.shape.front(), static_cast<int>(ranks.size()));
  return static_cast<std::size_t>(rows[static_cast<std::size_t>(member)]) * own.row_bytes();
}

}  // namespace

void Staged::Arrivals::note(Status copied) {
  if (!copied.ok()) {
    const std::lock_guard lock(mutex);
    status = std::move(copied);
  }
  if (n_missing.fetch_sub(1, std::memory_order_acq_rel) == 1) wake->ring();
}

// Returns false if there is no memory. Null pointers stay null; if input and output are the same, they stay the same.
bool Staged::add(Request& request, std::size_t index, std::span<const int> ranks, int rank) {
  TensorMemory& memory = request.memory[index];
  Tensor tensor{.on_device = memory, .input = {}, .output = {}};
  tensor.n_bytes_written = memory.output != nullptr ? n_bytes_written(request, index, ranks, rank) : 0;
  const bool is_in_place = memory.input == memory.output;
  const std::size_t n_bytes_in = std::max(n_bytes_read(request, index, rank), is_in_place ? tensor.n_bytes_written : 0);
  const auto allocate = [&](const std::byte* on_device, std::size_t n_bytes) {
    return on_device == nullptr ? nullptr : device_.allocate_on_host(memory.place, std::max<std::size_t>(n_bytes, 1));
  };
  tensor.input = allocate(memory.input, n_bytes_in);
  tensor.output = is_in_place ? tensor.input : allocate(memory.output, tensor.n_bytes_written);
  const auto has_all = [&] {
    return (memory.input == nullptr || tensor.input != nullptr) &&
           (memory.output == nullptr || tensor.output != nullptr);
  };
  if (!has_all()) return false;
  memory = {tensor.input.get(), tensor.output.get()};
  tensors_.push_back(std::move(tensor));
  return true;
}

void Staged::fetch(const Request& request, int rank) {
  const auto n_bytes = [&](std::size_t i) { return tensors_[i].input != nullptr ? n_bytes_read(request, i, rank) : 0; };
  for (std::size_t i = 0; i < tensors_.size(); ++i) arrivals_->n_missing += n_bytes(i) > 0 ? 1 : 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (n_bytes(i) == 0) continue;
    const Tensor& tensor = tensors_[i];
    device_.fetch(tensor.on_device.place, tensor.input.get(), tensor.on_device.input, n_bytes(i),
                  [arrivals = arrivals_, memory = tensor.input](Status copied) { arrivals->note(std::move(copied)); });
  }
}

// The queue keeps the memory from which it copies. If the copy fails, all later work of the queue fails.
void Staged::put(const Tensor& tensor, std::byte* to, std::shared_ptr<std::byte> from, std::size_t n_bytes) const {
  if (n_bytes == 0) return;
  const std::byte* const host = from.get();
  device_.put(tensor.on_device.place, to, host, n_bytes, [kept = std::move(from)](const Status&) {});
}

Status Staged::end(Operation& operation) const {
  std::vector<OutputBuffer> outputs = operation.outputs();  // outputs after those of the tensors stay on the host
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    std::byte* const given = tensor.on_device.output;
    if (i >= outputs.size()) {
      put(tensor, given, tensor.output, tensor.n_bytes_written);
      continue;
    }
    std::shared_ptr<std::byte> host = std::move(outputs[i].data);
    const bool is_given = host.get() == tensor.output.get();
    outputs[i].place = tensor.on_device.place;
    outputs[i].data = is_given ? std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), given)
                               : device_.allocate(tensor.on_device.place, std::max<std::size_t>(outputs[i].n_bytes, 1));
    if (!is_given && outputs[i].data == nullptr) {
      return Status::internal("there is no memory " + to_string(tensor.on_device.place) + " for a result of " +
                              std::to_string(outputs[i].n_bytes) + " bytes");
    }
    put(tensor, outputs[i].data.get(), is_given ? tensor.output : std::move(host), outputs[i].n_bytes);
  }
  operation.set_outputs(std::move(outputs));
  return Status::ok_status();
}

Result<std::unique_ptr<Staged>> Staged::make(Request& request, std::span<const BackendRow> backends,
                                             const ProcessSets& sets, int rank, std::shared_ptr<Wake> wake) {
  const Place place = request.memory.front().place;
  const auto row = std::ranges::find(backends, place.type, &BackendRow::memory);
  Device* const device = row != backends.end() ? row->device() : nullptr;
  if (device == nullptr) {
    return Status::invalid_argument(call_text(request) + ": its tensors lie " + to_string(place) +
                                    ", which there is no backend for here.");
  }
  const Ranks ranks = sets.ranks(request.process_set);
  if (!ranks) return Status::aborted("process set " + std::to_string(request.process_set) + " has been removed.");
  std::unique_ptr<Staged> staged(new Staged(*device));
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    if (staged->add(request, i, *ranks, rank)) continue;
    return Status::internal(call_text(request) + ": there is no host memory to stage its tensors in");
  }
  request.is_awaited = false;
  staged->arrivals_->wake = std::move(wake);
  staged->fetch(request, rank);
  return staged;
}

}  // namespace ciranda
