#include "execute/staged.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/round_up.hpp"

namespace ciranda {
namespace {

bool is_from_root(const CollectiveInfo& row) { return row.has_root && row.is_same_on_all; }

// --- The number of bytes of a tensor's memory that a call reads, and that it writes, on this rank. `ranks`: those of
// --- its process set, ascending. `rank`: this rank, in the world. REQUIRES, for both: the request is valid, and its
// --- splits are settled.

std::size_t n_bytes_read(const Request& request, std::size_t tensor, int rank) {
  const Signature& signature = request.signature;
  const CollectiveInfo& row = info(signature.collective);
  if (row.takes_splits) return sum_of(request.splits[tensor]) * signature.tensors[tensor].row_bytes();
  return is_from_root(row) && signature.root != rank ? 0 : signature.tensors[tensor].n_bytes();
}

// The largest possible number, if the output is used only when the result fits. 0 if the caller's output is not used,
// or is the root's tensor: two calls may send the same one, as those of a weight with two names do.
std::size_t n_bytes_written(const Request& request, std::size_t tensor, std::span<const int> ranks, int rank) {
  const Signature& signature = request.signature;
  const TensorSignature& own = signature.tensors[tensor];
  const CollectiveInfo& row = info(signature.collective);
  const TensorMemory& memory = request.memory[tensor];
  if (is_from_root(row) && signature.root == rank && memory.input == memory.output) return 0;
  if (!row.allocates_output) return has_result(signature, rank) ? own.n_bytes() : 0;
  if (keeps_rows(request)) return n_bytes_read(request, tensor, rank);
  if (row.first_dim_may_differ) return request.has_room_for_all && !row.has_root ? ranks.size() * own.n_bytes() : 0;
  if (!row.is_reduction) return 0;
  const auto member = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const auto rows = even_splits(own.shape.front(), static_cast<int>(ranks.size()));
  return static_cast<std::size_t>(rows[static_cast<std::size_t>(member)]) * own.row_bytes();
}

// The size of a tensor's place in the block, and the part of it that is behind the tensor.
std::size_t padded(std::size_t n_bytes) { return round_up(n_bytes, 64); }
std::size_t n_bytes_behind(std::size_t n_bytes) { return padded(n_bytes) - n_bytes; }

// Divides copies to host memory into windows of at most so many bytes there, in its order. Long copies are cut.
std::vector<std::vector<DeviceCopy>> in_windows(std::vector<DeviceCopy> copies, std::size_t most_bytes) {
  std::ranges::sort(copies, {}, &DeviceCopy::to);
  std::vector<std::vector<DeviceCopy>> windows;
  const std::byte* end = nullptr;  // of the last one
  for (const DeviceCopy& copy : copies) {
    for (std::size_t done = 0; done < copy.n_bytes;) {
      std::byte* const to = copy.to + done;
      if (windows.empty() || to >= end) {
        windows.emplace_back();
        end = to + most_bytes;
      }
      const std::size_t n_bytes = std::min(copy.n_bytes - done, static_cast<std::size_t>(end - to));
      const bool is_last = done + n_bytes == copy.n_bytes;
      windows.back().push_back({to, copy.from + done, n_bytes, is_last ? copy.n_bytes_behind : 0, copy.is_pinned});
      done += n_bytes;
    }
  }
  return windows;
}

}  // namespace

Staged::Staged(Device& device, std::size_t chunk_bytes, std::shared_ptr<Wake> wake)
    : device_(device), chunk_bytes_(chunk_bytes) {
  inputs_->wake = wake;
  results_->wake = std::move(wake);
}

void Staged::Copies::begin(std::size_t n) {
  n_missing.fetch_add(n, std::memory_order_relaxed);
  n_under_way.fetch_add(n, std::memory_order_relaxed);
}

void Staged::Copies::note_put(std::size_t queue, Result<Device::Put> put) {
  const bool is_queued = put.ok() && put.value().event != nullptr;
  if (is_queued) puts[queue].event = std::move(put.value().event);
  if (put.ok()) std::ranges::move(put.value().allocated, std::back_inserter(puts[queue].allocated));
  if (!is_queued) end();
  note(put.status());
}

bool Staged::Copies::is_here(std::span<const std::byte> memory) const {
  const std::byte* const begin = memory.data();
  return std::ranges::all_of(windows, [begin, end = begin + memory.size()](const Window& window) {
    return window.end <= begin || end <= window.begin || window.is_here.load(std::memory_order_acquire);
  });
}

Status Staged::Copies::status() const {
  const std::lock_guard lock(mutex);
  return failure;
}

void Staged::Copies::note(const Status& copied, Window* of_window) {
  if (!copied.ok()) {
    const std::lock_guard lock(mutex);
    failure = wake->of_this_rank(copied);
  }
  if (of_window != nullptr) of_window->is_here.store(true, std::memory_order_release);
  if (n_missing.fetch_sub(1, std::memory_order_acq_rel) == 1 || of_window != nullptr) wake->ring();
}

// --- when the call is made

// Adds a tensor. Records an event in its queue if it is the first tensor of that queue.
Status Staged::add(const TensorMemory& memory, std::size_t index, CaptureId capture) {
  Tensor& tensor = tensors_.emplace_back();
  tensor.on_device = memory;
  tensor.index = index;
  const auto found = std::ranges::find(queues_, memory.place.queue, [](const Queue& q) { return q.place.queue; });
  tensor.queue = static_cast<std::size_t>(found - queues_.begin());
  if (found != queues_.end()) return Status::ok_status();
  Result<DeviceEventPtr> recorded =
      capture == 0 ? device_.record(memory.place) : device_.record_in_capture(memory.place);
  if (!recorded.ok()) return recorded.status();
  queues_.push_back({memory.place, std::move(recorded).value()});
  return Status::ok_status();
}

// One block for all tensors: inputs, tensors in place, outputs. All that is copied in one direction lies one behind the
// other, so that few copies can do it. Returns an error if there is no memory. Null pointers stay null; if input and
// output are the same, they stay the same.
Status Staged::allocate(Request& request) {
  std::size_t n_bytes = 0;
  const auto reserve = [&n_bytes](std::size_t size) { return std::exchange(n_bytes, n_bytes + padded(size)); };
  std::vector<std::size_t> inputs(tensors_.size());  // these two in the block
  std::vector<std::size_t> outputs(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!is_in_place(tensors_[i])) inputs[i] = reserve(tensors_[i].n_bytes_read);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::size_t most = std::max(tensors_[i].n_bytes_read, tensors_[i].n_bytes_written);
    if (is_in_place(tensors_[i])) inputs[i] = outputs[i] = reserve(most);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!is_in_place(tensors_[i])) outputs[i] = reserve(tensors_[i].n_bytes_written);
  }
  HostMemory memory = device_.allocate_on_host(place(), std::max<std::size_t>(n_bytes, 1));
  if (memory.data == nullptr) {
    return Status::internal("there are no " + std::to_string(n_bytes) +
                            " bytes of host memory to stage its tensors in; combine less at a time");
  }
  host_ = std::move(memory.data);
  n_host_bytes_ = n_bytes;
  if (!memory.is_pinned) n_pageable_bytes_ = n_bytes;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    if (tensor.on_device.input != nullptr) tensor.input = host_.get() + inputs[i];
    if (tensor.on_device.output != nullptr) tensor.output = host_.get() + outputs[i];
    request.memory[tensor.index] = {tensor.input, tensor.output};
  }
  return Status::ok_status();
}

void Staged::fetch() {
  CopiesByQueue copies(queues_.size());
  for (const Tensor& tensor : tensors_) {
    if (tensor.input == nullptr || tensor.n_bytes_read == 0) continue;
    copies[tensor.queue].push_back(
        {tensor.input, tensor.on_device.input, tensor.n_bytes_read, n_bytes_behind(tensor.n_bytes_read), is_pinned()});
  }
  struct Fetch {
    const Queue& queue;
    std::vector<DeviceCopy> copies;
  };
  std::vector<Fetch> fetches;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    for (auto& window : in_windows(std::move(copies[i]), chunk_bytes_))
      fetches.push_back({queues_[i], std::move(window)});
  }
  inputs_->windows = std::vector<Window>(fetches.size());
  inputs_->begin(fetches.size());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    auto& [queue, window] = fetches[i];
    Window& fetched = inputs_->windows[i];
    fetched.begin = window.front().to;
    fetched.end = window.back().to + window.back().n_bytes;
    device_.fetch(queue.place, std::move(window), queue.recorded,
                  [inputs = inputs_, kept = host_, &fetched](const Status& copied) {
                    inputs->end();
                    inputs->note(copied, &fetched);
                  });
  }
}

// Breaks the world: this rank does not make the call that its device has refused, so other ranks would pair its next
// call of the name with theirs.
Status Staged::fail(const Request& request, const Status& why) const {
  Status failed = Status::internal(call_text(request) + ": " + why.message());
  inputs_->wake->fail(failed);
  return failed;
}

DeviceEventPtr Staged::idle_event() const {
  struct Idle final : DeviceEvent {
    Idle(std::shared_ptr<Copies> in, std::shared_ptr<Copies> out) : inputs(std::move(in)), results(std::move(out)) {}
    Status order(const Place&) const override { return Status::ok_status(); }
    bool has_passed() const override { return inputs->is_idle() && results->is_idle(); }
    const std::shared_ptr<Copies> inputs;
    const std::shared_ptr<Copies> results;
  };
  return std::make_shared<Idle>(inputs_, results_);
}

namespace {

// The capture in which the queues of all tensors on the device are; 0: none. REQUIRES: one is there.
Result<CaptureId> capture_of(const Request& request, Device& device) {
  std::optional<CaptureId> first;
  for (const TensorMemory& memory : request.memory) {
    if (memory.place.is_host()) continue;
    const Result<CaptureId> capture = device.capture(memory.place);
    if (!capture.ok()) return capture.status();
    if (capture.value() != first.value_or(capture.value())) {
      return Status::invalid_argument(
          "the streams of its tensors are not all captured into the same CUDA graph: make the call on one stream");
    }
    first = capture.value();
  }
  return *first;
}

// Ok if such a call may be part of a graph, as far as this rank knows.
Status why_not_captured(const Request& request, const WayExpected& expected, std::size_t n_members) {
  if (expected.may_be_captured(request, n_members)) return Status::ok_status();
  return Status::invalid_argument(
      "its stream is being captured into a CUDA graph, of which only calls of several ranks that go by NCCL "
      "(CIRANDA_GPU_WAY=nccl) can be part: make it before or after the capture");
}

std::atomic<std::uint64_t> n_captured_calls{0};

}  // namespace

std::uint64_t Staged::n_captured() { return n_captured_calls.load(); }

Result<std::unique_ptr<Staged>> Staged::make(Request& request, const In& world) {
  const Place place = request.memory[first_on_device(request)].place;
  const auto row = std::ranges::find(world.backends, place.type, &BackendRow::memory);
  const std::string where = call_text(request) + ": its tensors lie " + to_string(place);
  if (row == world.backends.end()) return Status::invalid_argument(where + ", for which this build has no backend.");
  const Result<Device*> device = row->device();
  if (!device.ok()) return Status::invalid_argument(where + ", but " + device.status().message());
  const Ranks ranks = world.sets.ranks(request.process_set);
  if (!ranks) return Status::aborted("process set " + std::to_string(request.process_set) + " has been removed.");
  const auto refused = [&](const Status& why) { return Status(why.kind(), call_text(request) + ": " + why.message()); };
  const Result<CaptureId> capture = capture_of(request, *device.value());
  if (!capture.ok()) return refused(capture.status());
  const bool is_all_there =
      std::ranges::none_of(request.memory, [](const TensorMemory& memory) { return memory.place.is_host(); });
  const bool may_go_there = world.expected.may_be_on_device(ranks->size()) && row->make != nullptr && is_all_there &&
                            device.value()->kernels(place).ok();
  request.home = may_go_there ? home_on(place.index) : kStagedHome;
  if (capture.value() != 0) {
    if (const Status why = why_not_captured(request, world.expected, ranks->size()); !why.ok()) return refused(why);
    request.home |= kCaptured;
    n_captured_calls.fetch_add(1);
  }
  std::unique_ptr<Staged> staged(new Staged(*device.value(), world.chunk_bytes, world.wake));
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    if (request.memory[i].place.is_host()) continue;
    if (Status status = staged->add(request.memory[i], i, capture.value()); !status.ok()) {
      return staged->fail(request, status);
    }
    Tensor& tensor = staged->tensors_.back();
    if (tensor.on_device.input != nullptr) tensor.n_bytes_read = n_bytes_read(request, i, world.rank);
    if (tensor.on_device.output != nullptr) tensor.n_bytes_written = n_bytes_written(request, i, *ranks, world.rank);
  }
  request.is_awaited = false;
  if (is_captured(request.home) || is_on_device(world.expected.of(request, ranks->size()))) return staged;
  if (Status status = staged->stage(request); !status.ok()) return staged->fail(request, status);
  return staged;
}

Status Staged::stage(Request& request) {
  if (Status status = allocate(request); !status.ok()) return status;
  fetch();
  return Status::ok_status();
}

// --- when the log has chosen its way

// Rarely stages the call here: only if its way differs from that of the last call.
Status Staged::use(Way way, Request& request) {
  if (!is_on_device(way)) return host_ == nullptr ? stage(request) : Status::ok_status();
  is_by_peer_ = true;
  for (const Tensor& tensor : tensors_) request.memory[tensor.index] = tensor.on_device;
  return Status::ok_status();
}

void Staged::allocate_outputs(const std::vector<std::size_t>& n_bytes) {
  std::vector<std::vector<std::size_t>> by_queue(queues_.size());
  for (const Tensor& tensor : tensors_) by_queue[tensor.queue].push_back(n_bytes[tensor.index]);
  inputs_->puts.resize(queues_.size());
  inputs_->n_missing = queues_.size();
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    device_.allocate_results(queues_[i].place, std::move(by_queue[i]), queues_[i].recorded,
                             [inputs = inputs_, i](Result<Device::Put> made) {
                               const Status status = made.status();
                               if (status.ok()) inputs->puts[i] = std::move(made).value();
                               inputs->note(status);
                             });
  }
}

Result<std::vector<OutputBuffer>> Staged::allocated_outputs(const std::vector<std::size_t>& n_bytes) const {
  std::vector<OutputBuffer> outputs;
  std::vector<std::size_t> n_taken(queues_.size(), 0);
  for (const Tensor& tensor : tensors_) {
    auto data = std::move(inputs_->puts[tensor.queue].allocated[n_taken[tensor.queue]++]);
    if (data == nullptr) return no_memory(tensor, n_bytes[tensor.index]);
    outputs.push_back({std::move(data), n_bytes[tensor.index], {}, tensor.on_device.place});
  }
  return outputs;
}

void Staged::sum_up(const std::vector<std::span<const std::byte>>& results) {
  inputs_->n_missing = 1;
  device_.checksums(place(), results, [inputs = inputs_, kept = hold()](Result<std::vector<std::uint64_t>> sums) {
    const Status status = sums.status();
    if (status.ok()) inputs->checksums = std::move(sums).value();
    inputs->note(status);
  });
}

std::vector<DeviceEventPtr> Staged::after() const {
  std::vector<DeviceEventPtr> events;
  for (const Queue& queue : queues_) events.push_back(queue.recorded);
  for (const Device::Put& allocated : inputs_->puts) {
    if (allocated.event != nullptr) events.push_back(allocated.event);
  }
  return events;
}

std::shared_ptr<void> Staged::hold() const {
  inputs_->n_under_way.fetch_add(1, std::memory_order_relaxed);
  return {inputs_.get(), [inputs = inputs_](void*) { inputs->end(); }};
}

// --- when it is executed

void Staged::put_results(const Operation& operation) {
  if (is_by_peer_) return;
  const std::vector<OutputBuffer>& outputs = operation.outputs();  // those after the tensors' stay on the host
  std::vector<std::shared_ptr<std::byte>> kept{host_};
  for (const OutputBuffer& output : outputs) kept.push_back(output.data);
  CopiesByQueue copies(queues_.size());
  for (const Tensor& tensor : tensors_) {
    if (tensor.n_bytes_put > 0) continue;
    std::vector<DeviceCopy>& to = copies[tensor.queue];
    if (tensor.index < outputs.size()) {
      const OutputBuffer& output = outputs[tensor.index];
      const bool allocates = is_allocated(tensor, output);
      if (!allocates && output.n_bytes == 0) continue;
      to.push_back({allocates ? nullptr : tensor.on_device.output, output.data.get(), output.n_bytes,
                    allocates ? 0 : n_bytes_behind(output.n_bytes), !allocates && is_pinned()});
    } else if (tensor.output != nullptr && tensor.n_bytes_written > 0) {
      to.push_back({tensor.on_device.output, tensor.output, tensor.n_bytes_written,
                    n_bytes_behind(tensor.n_bytes_written), is_pinned()});
    }
  }
  put(std::move(copies), kept);
}

// The tensor of whose output on the host this is a part; null: of none. Results follow each other in the order of the
// tensors, so it looks first where it has found the last one.
Staged::Tensor* Staged::tensor_of(const std::byte* result) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::size_t index = (last_put_ + i) % tensors_.size();
    Tensor& tensor = tensors_[index];
    if (tensor.output == nullptr || result < tensor.output || result >= tensor.output + tensor.n_bytes_written)
      continue;
    last_put_ = index;
    return &tensor;
  }
  return nullptr;
}

void Staged::put(std::span<const std::span<std::byte>> of_block) {
  CopiesByQueue copies(queues_.size());
  for (const std::span<std::byte> part : of_block) {
    Tensor* const tensor = tensor_of(part.data());
    if (tensor == nullptr) continue;
    const auto offset = static_cast<std::size_t>(part.data() - tensor->output);
    const std::size_t n_bytes = std::min(part.size(), tensor->n_bytes_written - offset);
    const bool is_last = offset + n_bytes == tensor->n_bytes_written;
    copies[tensor->queue].push_back({tensor->on_device.output + offset, part.data(), n_bytes,
                                     is_last ? n_bytes_behind(tensor->n_bytes_written) : 0, is_pinned()});
    tensor->n_bytes_put += n_bytes;
  }
  put(std::move(copies), {host_});
}

// A copy that fails after the operation is done breaks the world.
void Staged::put(CopiesByQueue copies, std::vector<std::shared_ptr<std::byte>> kept) {
  results_->puts.resize(queues_.size());
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (copies[i].empty()) continue;
    results_->begin(1);
    device_.put(
        queues_[i].place, std::move(copies[i]), queues_[i].recorded,
        [results = results_, i](Result<Device::Put> put) { results->note_put(i, std::move(put)); },
        [results = results_, kept](Status copied) {
          results->end();
          if (!copied.ok()) results->wake->fail(copied);
        });
  }
}

std::string Staged::why_slow() const {
  return is_pinned() ? ""
                     : "there are no " + std::to_string(n_pageable_bytes_) + " bytes of pinned host memory for " +
                           device_.name(place()) + ": allow more locked memory (ulimit -l, the container's limits)";
}

Status Staged::no_memory(const Tensor& tensor, std::size_t n_bytes) const {
  return Status::internal("there is no memory on " + device_.name(tensor.on_device.place) + " for a result of " +
                          std::to_string(n_bytes) + " bytes");
}

Status Staged::conclude(Operation& operation, const std::vector<DeviceEventPtr>& results) {
  if (is_by_peer_) {
    operation.set_events(results);
    return Status::ok_status();
  }
  std::vector<OutputBuffer> outputs = operation.outputs();
  std::vector<std::size_t> n_taken(queues_.size(), 0);  // of the memory that the device has allocated
  for (const Tensor& tensor : tensors_) {
    if (tensor.index >= outputs.size()) break;
    OutputBuffer& output = outputs[tensor.index];
    output.place = tensor.on_device.place;
    if (!is_allocated(tensor, output)) {
      output.data = std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), tensor.on_device.output);
      continue;
    }
    output.data = std::move(results_->puts[tensor.queue].allocated[n_taken[tensor.queue]++]);
    if (output.data == nullptr) return no_memory(tensor, output.n_bytes);
  }
  operation.set_outputs(std::move(outputs));
  std::vector<DeviceEventPtr> events;
  for (Device::Put& put : results_->puts) {
    if (put.event != nullptr) events.push_back(std::move(put.event));
  }
  operation.set_events(std::move(events));
  return Status::ok_status();
}

}  // namespace ciranda
