// PeerStream: this rank's stream for a lane's exchanges on its GPU, and how far it is. Work is queued by the GPU's
// thread, one piece at a time, and has ended when the event behind it has passed: then its results may be read by other
// ranks, whose work is queued only after they have heard of that. No work ever waits for another process.
//
// Called by PeerBackend, PeerGroup, PeerSettling, PeerAllreduce and NcclGroup (the holder of the progress lock). Work
// that is under way keeps what it needs, also when this has gone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

class PeerStream {
 public:
  // `mesh` is woken when work ends; it outlives this.
  PeerStream(Gpu& gpu, Mesh& mesh) : gpu_(gpu), state_(std::make_shared<State>(&mesh)) {}
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  // What the work in a stream is given.
  struct Tasks {
    GpuParts gpu;
    CUstream stream;
    std::vector<std::shared_ptr<std::byte>> kept;  // until it has ended

    // Copies ranges by one launch.
    Status copy(std::vector<Piece> pieces);
    Status reduce(const ReduceLaunch& launch) { return gpu.kernels->reduce(launch, stream); }
    Status wait_for(const DeviceEvent& event);
  };
  using Work = std::function<Status(Tasks& tasks)>;

  // Queues the work in a stream. `holds` are kept until it has ended, or for ever if the GPU fails. REQUIRES: nothing
  // is under way.
  void run(CUstream stream, std::vector<std::shared_ptr<void>> holds, Work work);
  // Calls the driver on the GPU's thread, without a stream; the call has ended when it returns. REQUIRES: as above.
  void call(std::function<Status()> calls);

  // Nothing is queued any more.
  void abort() { state_->is_over.store(true); }
  bool was_aborted() const { return state_->is_over.load(); }
  // Nor is the mesh woken.
  void leave();
  bool is_under_way() const { return state_->is_under_way.load(std::memory_order_acquire); }
  // Of the last work. REQUIRES: nothing is under way.
  Status status() const { return state_->status; }
  // Wakes the mesh, if the lane has not ended; any thread, also when this has gone.
  std::function<void()> waker() const {
    return [state = state_] { state->wake(); };
  }
  const std::string& name() const { return gpu_.name(); }
  Gpu& gpu() const { return gpu_; }

 private:
  // Shared with the GPU's thread.
  struct State {
    explicit State(Mesh* to_wake) : mesh(to_wake) {}
    void end(Status outcome);
    void wake();

    std::atomic<bool> is_over{false};
    std::atomic<bool> is_under_way{false};
    Status status;
    std::mutex mutex;
    Mesh* mesh;  // null: the lane has ended
  };

  Gpu& gpu_;
  std::shared_ptr<State> state_;
};

}  // namespace ciranda::cuda
