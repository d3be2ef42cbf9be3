// Staged: the staging buffer in host memory for the tensors of a call on a device, while the call is agreed on and
// executed. So every collective works on every device, wherever the other ranks have their tensors, and only the device
// itself accesses its memory. Calls in host memory need none of this.
//
// When the call is made, an event is recorded in each queue of its tensors, and their inputs are copied after it, in
// windows that arrive one by one; the results are copied when they are ready, which those of a part may be before the
// last input has arrived. Between the two, the tensors are the engine's. No thread of the engine waits for a copy.
//
// Called by Engine, which makes it as a call is submitted, on any thread; then by DataPlane and StagedBlocks, under the
// progress lock; held by Submission.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agree/process_sets.hpp"
#include "backend/device.hpp"
#include "backend/registry.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "base/way.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "execute/wake.hpp"
#include "execute/way_expected.hpp"

namespace ciranda {

class Staged {
 public:
  // The parts of the world that it uses. The devices in `backends` outlive it.
  struct In {
    std::span<const BackendRow> backends;
    const ProcessSets& sets;
    int rank;
    const WayExpected& expected;
    std::size_t chunk_bytes;
    const std::shared_ptr<Wake>& wake;
  };
  // For a request with tensors on a device. Stages it, unless another way is expected; sets its home. The call is not
  // ready at once, so it uses no direct round. Returns an error if the request is refused; if its device fails, the
  // world breaks, too. Any thread. REQUIRES: the request is prepared.
  static Result<std::unique_ptr<Staged>> make(Request& request, const In& world);

  // The number of calls of this process that are to be part of graphs, which their streams were captured into.
  static std::uint64_t n_captured();

  // The size of the chunks in which calls are staged; the same on all ranks.
  static std::size_t chunk_bytes(const Config& config) {
    constexpr std::size_t kSlots = 8;
    return kSlots * static_cast<std::size_t>(config.slot_bytes);
  }

  // Settles the way of the call when the log has chosen it: replaces the tensors' memory in the request by host memory,
  // into which their inputs are copied, or by that on the device again. REQUIRES: the request of make().
  Status use(Way way, Request& request) REQUIRES(progress_lock);
  bool is_staged() const { return host_ != nullptr && !is_by_peer_; }
  // Whether plans work on the tensors themselves.
  bool is_by_peer() const { return is_by_peer_; }
  // Begins to allocate the outputs on the device, of so many bytes for each tensor of the request. REQUIRES:
  // is_by_peer().
  void allocate_outputs(const std::vector<std::size_t>& n_bytes);
  // These, without shapes, or why there is no memory for them. REQUIRES: is_here(), status() is ok.
  Result<std::vector<OutputBuffer>> allocated_outputs(const std::vector<std::size_t>& n_bytes) const;
  // Begins to compute the checksums of results on the device. REQUIRES: is_by_peer(); the results are there.
  void sum_up(const std::vector<std::span<const std::byte>>& results);
  // These, by result. REQUIRES: is_here(), status() is ok.
  const std::vector<std::uint64_t>& checksums() const { return inputs_->checksums; }
  // What plans come after that work on the tensors.
  std::vector<DeviceEventPtr> after() const;
  // While it is kept, the tensors are in use.
  std::shared_ptr<void> hold() const;

  // An event that has passed while no copy is under way: until then a failed call must keep its tensors. It orders no
  // queue.
  DeviceEventPtr idle_event() const;
  // Whether all inputs have arrived, outputs are allocated, and results summed up; status() has the outcome. The last
  // copy wakes the progress loop.
  bool is_here() const REQUIRES(progress_lock) { return inputs_->n_missing.load(std::memory_order_acquire) == 0; }
  // An error means that the device has failed.
  Status status() const REQUIRES(progress_lock) { return inputs_->status(); }
  Status results_status() const REQUIRES(progress_lock) { return results_->status(); }

  // The host memory in which it is staged. REQUIRES: is_staged().
  std::span<const std::byte> block() const { return {host_.get(), n_host_bytes_}; }
  // Whether the inputs in this range of it have arrived, or their copy has failed. Each window wakes the progress loop.
  bool is_here(std::span<const std::byte> of_block) const REQUIRES(progress_lock) { return inputs_->is_here(of_block); }
  // Begins to copy these ranges of it, which are final, to the tensors, as far as they are results.
  void put(std::span<const std::span<std::byte>> of_block) REQUIRES(progress_lock);

  // Begins to copy what put() has not. REQUIRES: the request is executed.
  void put_results(const Operation& operation) REQUIRES(progress_lock);
  // Whether the copies are in the device's queue. The last one wakes the progress loop. REQUIRES: put_results() was
  // called.
  bool are_results_queued() const REQUIRES(progress_lock) {
    return results_->n_missing.load(std::memory_order_acquire) == 0;
  }
  // Gives the operation its outputs on the device, and the events that pass when they are there: `results` are those
  // of plans that work on the tensors themselves. Returns an error if there was no memory for them. REQUIRES:
  // are_results_queued(), results_status() is ok.
  Status conclude(Operation& operation, const std::vector<DeviceEventPtr>& results) REQUIRES(progress_lock);

  Device& device() const { return device_; }
  // The place of the first queue.
  const Place& place() const { return queues_.front().place; }
  // Why its copies take longer than need be; empty: they do not.
  std::string why_slow() const;
  // "on GPU 0 (GPU-5f0a11c2)"
  std::string where() const { return "on " + device_.name(place()); }

 private:
  struct Tensor {
    TensorMemory on_device;
    std::size_t index = 0;            // in the request
    std::size_t queue = 0;            // in queues_
    std::size_t n_bytes_read = 0;     // of the input
    std::size_t n_bytes_written = 0;  // of the output that the caller has given
    std::size_t n_bytes_put = 0;      // of these, those that put() has taken
    std::byte* input = nullptr;       // these two on the host
    std::byte* output = nullptr;      // may be the input
  };
  // A queue of the caller's, and where the call was made in it.
  struct Queue {
    Place place;
    DeviceEventPtr recorded;
  };
  using CopiesByQueue = std::vector<std::vector<DeviceCopy>>;
  // What is copied to a part of the host's memory at once.
  struct Window {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    std::atomic<bool> is_here{false};
  };
  // The state of the copies in one direction. Shared with the device's threads.
  struct Copies {
    std::atomic<std::size_t> n_missing{0};    // that the device's threads have still to tell of
    std::atomic<std::size_t> n_under_way{0};  // that have begun, and not ended
    mutable std::mutex mutex;                 // guards `failure`
    Status failure;
    std::vector<Window> windows;    // of inputs
    std::vector<Device::Put> puts;  // by queue: the last event, and all memory; each is written by one thread
    std::vector<std::uint64_t> checksums;
    std::shared_ptr<Wake> wake;

    void begin(std::size_t n);
    void note(const Status& copied, Window* of_window = nullptr);
    void note_put(std::size_t queue, Result<Device::Put> put);
    void end() { n_under_way.fetch_sub(1, std::memory_order_release); }
    bool is_idle() const { return n_under_way.load(std::memory_order_acquire) == 0; }
    bool is_here(std::span<const std::byte> memory) const;
    Status status() const;
  };

  Status stage(Request& request);
  Staged(Device& device, std::size_t chunk_bytes, std::shared_ptr<Wake> wake);
  // `capture`: in which its queue is.
  Status add(const TensorMemory& memory, std::size_t index, CaptureId capture);
  Status fail(const Request& request, const Status& why) const;
  Status allocate(Request& request);
  void fetch();
  void put(CopiesByQueue copies, std::vector<std::shared_ptr<std::byte>> kept);
  Tensor* tensor_of(const std::byte* result);
  Status no_memory(const Tensor& tensor, std::size_t n_bytes) const;
  bool is_pinned() const { return n_pageable_bytes_ == 0; }
  static bool is_in_place(const Tensor& tensor) { return tensor.on_device.input == tensor.on_device.output; }
  // Whether the device allocates the tensor's output, which is now on the host.
  static bool is_allocated(const Tensor& tensor, const OutputBuffer& output) {
    return output.data.get() != tensor.output;
  }

  Device& device_;
  const std::size_t chunk_bytes_;
  std::vector<Tensor> tensors_;
  std::size_t last_put_ = 0;  // tensor
  std::vector<Queue> queues_;
  std::shared_ptr<std::byte> host_;  // null: not staged
  std::size_t n_host_bytes_ = 0;
  std::size_t n_pageable_bytes_ = 0;  // of it, if it is not pinned
  bool is_by_peer_ = false;
  std::shared_ptr<Copies> inputs_ = std::make_shared<Copies>();
  std::shared_ptr<Copies> results_ = std::make_shared<Copies>();
};

}  // namespace ciranda
