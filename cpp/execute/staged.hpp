// Staged: host memory that stands for the tensors of a call on a device, while the call is agreed on and carried out.
// So every collective is there for every device, whatever the other ranks have, and only the device itself touches its
// memory. The host's memory needs none of this.
//
// The call's inputs are copied in the order of their queues, from the place that the call took in them; results into
// the queues when they are there. Neither is waited for by a thread of the engine.
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
#include "call/operation.hpp"
#include "call/request.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Lets threads that may outlive an engine wake its progress loop, as long as it is there. Any thread. Held by a
// shared_ptr; the engine ends it before the mesh is gone.
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
  // Of a request whose tensors lie on a device. Its memory is the host's from here on, and the call is one that is not
  // ready at once: no direct round is for it. Not ok: it is refused. Any thread. `rank`: in the world. What `backends`
  // names outlives the result. REQUIRES: a request that is prepared.
  static Result<std::unique_ptr<Staged>> make(Request& request, std::span<const BackendRow> backends,
                                              const ProcessSets& sets, int rank, std::shared_ptr<Wake> wake);

  // The holder of the progress lock's, all three.

  // Whether all inputs are there, and copying them went well. Rings when it becomes so.
  bool is_here() const { return arrivals_->n_missing.load(std::memory_order_acquire) == 0; }
  // REQUIRES: is_here(). Not ok: the device has failed.
  Status status() const { return arrivals_->status; }
  // Gives the result to the tensors' queues, and the operation outputs on the device. Not ok: there is no memory for
  // them. REQUIRES: the request was carried out.
  Status end(Operation& operation) const;

 private:
  struct Tensor {
    TensorMemory on_device;
    std::shared_ptr<std::byte> input;
    std::shared_ptr<std::byte> output;  // may be the input
    std::size_t n_bytes_written = 0;    // of what the caller has given
  };
  struct Arrivals {
    std::atomic<std::size_t> n_missing{0};
    std::mutex mutex;  // of those that write
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
  std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();  // which the device's threads hold too
};

}  // namespace ciranda
