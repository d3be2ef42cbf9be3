// CapturedGraph: a CUDA graph that the program captures and in which there is work of ours: our stream in the capture,
// and what the work uses. It lives until the graph, all that was instantiated from it, and their launches have ended,
// as a user object of the driver's.
//
// Our stream joins the capture when it waits for an event of it, and leaves when the capture ends. It is used for no
// other work meanwhile, so that calls outside of the capture are not part of it. All work of ours in a graph is in this
// stream, and the driver does not run two launches of an instance at a time: so one room serves them all, and it is no
// other's.
//
// Threads: record() is called by the one that captures, or that may; the rest by the GPU's.
//
// Called by CudaDevice, PeerStream and NcclCollective.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "backend/cuda/nccl_room.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class CapturedGraph {
 public:
  // An event of the capture that the caller's stream is in.
  static Result<DeviceEventPtr> record(Gpu& gpu, CUstream stream);

  CapturedGraph(Gpu& gpu, std::uint64_t capture, CUstream stream) : gpu_(gpu), capture_(capture), stream_(stream) {}
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  CUstream stream() const { return stream_; }
  // An event of that.
  static Result<std::shared_ptr<const Event>> record(const std::shared_ptr<CapturedGraph>& graph);
  // As long as the graph.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }
  // These, too, from when they are there: work of a graph cannot wait for an event from outside.
  void keep_results(Device::Put made, const Device::Queued& queued);
  // Memory of this size in which tensors are packed. Null: make_room() was not called. Any thread.
  std::byte* room(std::size_t n_bytes) const;
  Status make_room(std::size_t n_bytes);

 private:
  static Result<std::shared_ptr<CapturedGraph>> of(Gpu& gpu, CUstream stream);

  Gpu& gpu_;
  const std::uint64_t capture_;
  const CUstream stream_;
  std::vector<std::shared_ptr<void>> kept_;
  mutable std::mutex mutex_;
  std::map<std::size_t, NcclRoom*> rooms_;  // by size
};

}  // namespace ciranda::cuda
