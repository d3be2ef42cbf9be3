// Staged: staging buffers in host memory for the tensors of a call on a device, while the call is agreed on and
// executed. So every collective works on every device, wherever the other ranks have their tensors, and only the device
// itself accesses its memory. Calls in host memory need none of this.
//
// The copies of the inputs are put into the tensors' queues when the call is made, the copies of the results when the
// results are ready. No thread of the engine waits for a copy.
//
// Called by Engine, which makes it as a call is submitted, on any thread; then by DataPlane, under the progress lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "agree/process_sets.hpp"
#include "backend/device.hpp"
#include "backend/registry.hpp"
#include "base/status.hpp"
#include "base/thread_annotations.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Lets threads that may outlive an engine wake its progress loop; does nothing once the engine has ended. Any thread.
// Held by a shared_ptr; the engine calls end() before it destroys the mesh.
class Wake {
 public:
  explicit Wake(Mesh& mesh) : mesh_(&mesh) {}

  void ring() {
    const std::lock_guard lock(mutex_);
    if (mesh_ != nullptr) mesh_->kick();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    mesh_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Mesh* mesh_;
};

class Staged {
 public:
  // For a request whose tensors lie on a device. Replaces the request's memory by host memory. The call is not ready at
  // once, so it uses no direct round. Returns an error if the request is refused. Any thread. `rank`: in the world. The
  // devices in `backends` outlive the result. REQUIRES: the request is prepared.
  static Result<std::unique_ptr<Staged>> make(Request& request, std::span<const BackendRow> backends,
                                              const ProcessSets& sets, int rank, std::shared_ptr<Wake> wake);

  // True if all copies of inputs have ended; status() has their result. The end of the last copy wakes the progress
  // loop.
  bool is_here() const REQUIRES(progress_lock) { return arrivals_->n_missing.load(std::memory_order_acquire) == 0; }
  // REQUIRES: is_here(). An error means that the device has failed.
  Status status() const REQUIRES(progress_lock) { return arrivals_->status; }
  // Puts the copies of the result into the tensors' queues, and sets outputs on the device in the operation. Returns an
  // error if there is no memory for them. REQUIRES: the request is executed.
  Status end(Operation& operation) const REQUIRES(progress_lock);

 private:
  struct Tensor {
    TensorMemory on_device;
    std::shared_ptr<std::byte> input;
    std::shared_ptr<std::byte> output;  // may be the input
    std::size_t n_bytes_written = 0;    // of the output that the caller has given
  };
  struct Arrivals {
    std::atomic<std::size_t> n_missing{0};
    std::mutex mutex;  // guards writes
    Status status;
    std::shared_ptr<Wake> wake;

    void note(Status copied);
  };

  explicit Staged(Device& device) : device_(device) {}
  bool add(Request& request, std::size_t index, std::span<const int> ranks, int rank);
  void fetch(const Request& request, int rank);
  void put(const Tensor& tensor, std::byte* to, std::shared_ptr<std::byte> from, std::size_t n_bytes) const;

  Device& device_;
  std::vector<Tensor> tensors_;
  std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();  // shared with the device's threads
};

}  // namespace ciranda
