// PeerStream: this rank's stream for a lane's exchanges on its GPU, and whether its work has ended. Work is queued by
// the GPU's thread, one piece at a time, and has ended when the event behind it has passed: then other ranks may read
// its results. They queue work that does only after they have learnt of that end, so no work waits for another process.
//
// Called by PeerBackend, PeerAlone, PeerGroup, PeerSettling, PeerCollective and NcclGroup (the holder of the progress
// lock). Work under way keeps alive what it needs, even after this object is destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/captured_graph.hpp"
#include "backend/cuda/gpu.hpp"
#include "base/device_work.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

class PeerStream {
 public:
  // `mesh` is woken when work ends; it is used until leave().
  PeerStream(Gpu& gpu, Mesh& mesh) : gpu_(gpu), state_(std::make_shared<State>(&mesh)) {}
  PeerStream(const PeerStream&) = delete;
  PeerStream& operator=(const PeerStream&) = delete;

  // Passed to the work that queues something in a stream.
  struct Tasks {
    GpuParts gpu;
    CUstream stream;
    std::vector<std::shared_ptr<std::byte>> kept;  // until it has ended

    // Copies ranges by one launch; one by one if there is no pinned memory for their descriptions.
    Status copy(std::vector<Piece> pieces);
    Status copy_each(std::span<const Piece> pieces);
    Status reduce(const ReduceLaunch& launch) { return gpu.kernels->reduce(launch, stream); }
    Status wait_for(const DeviceEvent& event);
  };
  using Work = std::function<Status(Tasks& tasks)>;

  // Queues the work in a stream. `holds` are kept until it has ended, or for ever if the GPU fails. REQUIRES: nothing
  // is under way.
  void run(CUstream stream, std::vector<std::shared_ptr<void>> holds, Work work);
  // The same in the GPU's stream of results for a caller's stream.
  void run_for(void* queue, std::vector<std::shared_ptr<void>> holds, Work work);
  // The same, but it has ended when the work is queued; `unended` ends when the GPU has done it. `await` calls back on
  // the GPU's thread once an event has passed; `check` says there whether the results can be used.
  using Await = std::function<void(std::shared_ptr<const Event> event, std::function<void(Status)> passed)>;
  struct Queue {
    CUstream stream;
    Await await;
  };
  void queue(Queue to, std::vector<std::shared_ptr<void>> holds, Work work, std::shared_ptr<DeviceWork> unended,
             std::function<Status()> check);
  // The same, but the work becomes a part of the graph, which keeps what it uses; it has ended when it is recorded.
  void record(std::shared_ptr<CapturedGraph> graph, Work work, std::shared_ptr<DeviceWork> recorded);
  // Calls the driver on the GPU's thread, without a stream; the call has ended when it returns. REQUIRES: as above.
  void call(std::function<Status()> calls);

  // From now on nothing is queued.
  void abort() { state_->is_over.store(true); }
  bool was_aborted() const { return state_->is_over.load(); }
  // As abort(); and the mesh is no longer woken, so it may be destroyed.
  void leave();
  bool is_under_way() const { return state_->is_under_way.load(std::memory_order_acquire); }
  // Whether the GPU may still have some of what was queued.
  bool has_unended() const { return state_->n_unended.load(std::memory_order_acquire) > 0; }
  // The outcome of the last work. REQUIRES: nothing is under way.
  Status status() const { return state_->status; }
  // The GPU, as in "on GPU 0", if work is under way; else empty.
  std::string awaited_device() const { return is_under_way() ? "on " + name() : ""; }
  // Wakes the mesh, if the lane has not ended; any thread, even after this object is destroyed.
  std::function<void()> waker() const {
    return [state = state_] { state->wake(); };
  }
  const std::string& name() const { return gpu_.name(); }
  Gpu& gpu() const { return gpu_; }

 private:
  using StreamOf = std::function<Result<CUstream>(Gpu& gpu)>;
  void run_in(StreamOf stream_of, std::vector<std::shared_ptr<void>> holds, Work work);

  // Shared with the GPU's thread.
  struct State {
    explicit State(Mesh* to_wake) : mesh(to_wake) {}
    void end(Status outcome);
    void wake();

    std::atomic<bool> is_over{false};
    std::atomic<bool> is_under_way{false};
    std::atomic<std::size_t> n_unended{0};  // that were queued, and have not ended
    Status status;
    std::mutex mutex;
    Mesh* mesh;  // null: the lane has ended
  };

  Gpu& gpu_;
  std::shared_ptr<State> state_;
};

}  // namespace ciranda::cuda
