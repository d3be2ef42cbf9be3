// NcclStream: the one stream of a rank's GPU for all of NCCL's work in a world, whichever lane and communicator it is
// for. NCCL wants one order of its work on all GPUs: that in which it is queued here, which turns settle
// (agree/turns.hpp). So a call need not wait for the end of the one before it.
//
// Called by NcclSettling, NcclShared, NcclGroup and NcclCollective. Threads: of() and when_passed() are for the GPU's;
// the others for any.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "backend/cuda/gpu.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

class NcclStream : public std::enable_shared_from_this<NcclStream> {
 public:
  // The rank in its world, and its GPU.
  using Key = std::pair<const PeerInfo*, const Gpu*>;

  // Makes it, if there is none.
  static Result<std::shared_ptr<NcclStream>> of(const Key& key, Gpu& gpu);
  // Null: there is none that can be used.
  static std::shared_ptr<NcclStream> find(const Key& key);

  NcclStream(Gpu& gpu, CUstream handle) : gpu_(gpu), handle_(handle) {}
  ~NcclStream();
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  CUstream handle() const { return handle_; }
  // Calls back once an event of the stream has passed. Only the first that has not is asked.
  void when_passed(std::shared_ptr<const Event> event, std::function<void(Status)> passed);
  // Whether all of those have passed.
  bool is_idle() const { return n_awaited_.load(std::memory_order_acquire) == 0; }
  // Work that never ends may still be in it.
  void leave_alone() { is_left_alone_.store(true); }

 private:
  struct Awaited {
    std::shared_ptr<const Event> event;
    std::function<void(Status)> passed;
  };

  void await_first();

  Gpu& gpu_;
  const CUstream handle_;
  std::deque<Awaited> awaited_;  // the GPU's thread's own
  std::atomic<std::size_t> n_awaited_{0};
  std::atomic<bool> is_left_alone_{false};
};

}  // namespace ciranda::cuda
