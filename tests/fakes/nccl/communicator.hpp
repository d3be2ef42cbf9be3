// Communicator: a rank's end of one. It is used by one thread at a time, but for aborts, and for the threads of
// streams, which run its kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/nccl_api.hpp"
#include "launch_order.hpp"
#include "segment.hpp"

namespace ciranda::fakes {

// A call of a group, with this rank's tensors.
struct Operation {
  Call call;
  const void* from;  // null: there is none
  void* to;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const cuda::ncclUniqueId& id, int n_ranks, int rank, const cuda::CUuuid& gpu);

  // As ncclCommGetAsyncError: what does not block goes on by these calls.
  cuda::ncclResult_t poll();
  // These together, by one kernel.
  cuda::ncclResult_t start(std::vector<Operation> operations, cuda::CUstream stream);

  // Kernels end without having done their work, also those that come later.
  void abort() { is_aborted_.store(true); }
  bool has_work() const { return n_under_way_.load() > 0; }
  // Whether a graph has kernels of it.
  bool is_captured() const { return n_kernels_.load() > 0; }
  // Of the GPU that the communicator is for.
  const cuda::CUuuid& gpu() const { return segment_->of(rank_).gpu; }

  // Kernels of the process.
  static inline std::atomic<std::uint64_t> n_under_way{0};

 private:
  struct Kernel;
  struct Begun;
  struct Touched;
  struct Transfer;

  cuda::ncclResult_t init();
  Touched touched(const Operation& operation) const;
  cuda::ncclResult_t launch(const std::vector<Operation>& operations, cuda::CUstream stream);
  std::vector<LaunchOrder::Meeting> meetings(const std::vector<Operation>& operations);
  std::unique_ptr<Begun> begin(const Kernel& kernel);
  // These return false if the kernel was aborted.
  bool run(const Begun& kernel);
  bool run(const Operation& operation);
  bool transfer(std::vector<Transfer> transfers);
  void take(const Operation& operation, std::size_t at, std::size_t n_bytes);
  bool is_over() const;
  void count(int change);  // of kernels
  // Returns false if the kernel was aborted.
  bool wait_until(const std::function<bool(const Segment::Part&)>& holds) const;

  const std::unique_ptr<Segment> segment_;
  const int rank_;
  const std::string id_;
  const std::uint64_t seed_;
  std::uint64_t n_polls_left_;
  bool is_made_ = false;
  std::optional<cuda::ncclResult_t> failed_;
  std::uint64_t n_calls_ = 0;
  std::mutex mutex_;                                          // of these three: graphs are launched by other threads
  std::uint64_t n_begun_ = 0;                                 // kernels, in the order in which they run
  std::uint64_t n_alike_ = 0;                                 // collectives among their operations
  std::map<std::pair<int, int>, std::uint64_t> n_transfers_;  // by sender and receiver
  std::function<cuda::ncclResult_t()> pending_;               // a launch that has not been made yet
  std::atomic<bool> is_aborted_{false};
  std::atomic<std::uint64_t> n_under_way_{0};
  std::atomic<std::uint64_t> n_kernels_{0};  // that may still be given to streams
  std::atomic<std::uint64_t> n_run_{0};
  std::uint64_t n_pieces_ = 0;  // of the kernel that runs
};

}  // namespace ciranda::fakes
