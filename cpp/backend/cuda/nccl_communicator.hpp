// NcclCommunicator: this rank's end of a communicator of NCCL's, which does not block: what takes long, to make it or
// to connect its first call, is waited for by the GPU's thread, until it is done or this is aborted.
//
// A communicator whose rank is lost is aborted, or its kernels would spin for ever: all of a GPU's in one group, since
// NCCL may hang if they are aborted one by one, and by a thread of their own. If NCCL does not come back from that, the
// process ends: nothing else frees its GPU.
//
// Threads: begin(), await_made() and run() are for the GPU's; the others for any.
//
// Called by NcclSettling, NcclCollective, NcclGroup, NcclShared and NcclBackend.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/nccl.hpp"
#include "backend/cuda/nccl_operation.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Begins to make one. `wake` is called, by the process's watch, when something has gone wrong: see status().
  // REQUIRES: the GPU's context is the thread's.
  static Result<std::shared_ptr<NcclCommunicator>> begin(const Nccl& nccl, const Gpu& gpu, const ncclUniqueId& id,
                                                         int n_ranks, int rank, std::function<void()> wake);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Wakes by this, too.
  void also_wake(std::function<void()> wake);

  // Waits until it is made, or why it cannot be. If it takes longer than that, it is given up.
  Status await_made(std::chrono::duration<double> most);
  // Queues these, as one group. REQUIRES: await_made() has returned ok; at least one.
  Status run(const std::vector<NcclOperation>& operations, CUstream stream);
  // What has gone wrong meanwhile, on this rank or another one, as far as the watch knows.
  Status status() const;
  // The same, as NCCL knows. REQUIRES: nothing is under way.
  Status look();

  // While it is kept, a graph has work of this, which may be launched at any time.
  std::shared_ptr<void> in_graph();
  bool is_in_graph() const { return n_in_graphs_.load() > 0; }

  // Ends all of this GPU, and what they have under way, without the other ranks. Returns at once.
  static void abort_all(const Gpu& gpu);
  // Ends this one, together with the other ranks; after a while without them. Returns at once. Nothing is under way.
  void end();

 private:
  NcclCommunicator(const Nccl& nccl, const Gpu& gpu, ncclComm_t handle, std::function<void()> wake)
      : nccl_(nccl), gpu_(gpu), handle_(handle), wakes_{std::move(wake)} {}
  Status await(const char* call, std::chrono::steady_clock::time_point deadline);
  ncclResult_t launch(const NcclOperation& operation, CUstream stream) const;
  ncclResult_t launch_all(const std::vector<NcclOperation>& operations, CUstream stream) const;
  // The lock of calls, which an abort keeps until NCCL is back from it; without it: this is over.
  std::unique_lock<std::mutex> lock_of_calls() const;
  // With the lock; aborted: nothing is called any more.
  Status call(const char* name, const auto& function);
  void finalize();
  void watch();

  friend struct NcclAbort;
  friend struct NcclWatch;

  const Nccl& nccl_;
  const Gpu& gpu_;
  const ncclComm_t handle_;
  std::mutex mutex_of_wakes_;
  std::vector<std::function<void()>> wakes_;
  std::atomic<bool> is_over_{false};
  std::atomic<bool> is_under_way_{true};  // a call, for which the GPU's thread waits
  Status failed_;                         // by the watch, once
  std::atomic<bool> has_failed_{false};
  std::atomic<std::size_t> n_in_graphs_{0};
  mutable std::mutex mutex_;  // of calls: NCCL does not want two at a time
};

}  // namespace ciranda::cuda
