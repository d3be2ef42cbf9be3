// Gpu: one GPU: its context, its kernels, its thread, and the streams in which tensors are copied. Each stream of a
// caller has two of these: then no copy waits behind one of another stream, which could in turn wait for it, and inputs
// and results are copied at the same time.
//
// Any thread. It lives as long as the process.
//
// Called by CudaDevice, PeerMemory, PeerStream, PeerBackend, CapturedGraph, NcclCommunicator, NcclRoom, NcclShared,
// NcclStream and take_stream().
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/checksums.hpp"
#include "backend/cuda/copy_stream.hpp"
#include "backend/cuda/device_thread.hpp"
#include "backend/cuda/events.hpp"
#include "backend/cuda/loaded_kernels.hpp"
#include "backend/cuda/memory_pool.hpp"
#include "backend/cuda/pinned_memory.hpp"
#include "backend/device.hpp"

namespace ciranda::cuda {

class Gpu {
 public:
  // The context that the rest of the process uses, the primary one, is retained. Returns an error if there is no GPU
  // with this number, or if it cannot be used; the error says why. If its kernels cannot be loaded, it does without
  // them.
  static Result<Gpu*> open(const Driver& driver, int number, Images images);

  const std::string& name() const { return context_.name; }
  const CUuuid& uuid() const { return uuid_; }
  // How many GPUs this process has; 0: not known.
  int n_visible() const { return n_visible_; }
  // Why it has no kernels; ok if it has.
  Status kernels() const { return kernels_.status(); }

  // For classes that give the GPU other work than copies. Any thread may use these parts, except the kernels.
  GpuParts parts() { return {context_, events_, pinned_, kernels_.ok() ? &kernels_.value() : nullptr}; }
  DeviceThread& thread() { return thread_; }

  // The stream of ours in which results for a caller's stream are made. REQUIRES: called by a job of the thread.
  Result<CUstream> stream_of_results(void* queue);

  // See the methods of Device with these names.
  Result<CaptureId> capture(void* queue) const;
  HostMemory allocate_on_host(std::size_t n_bytes);
  Result<DeviceEventPtr> record(void* queue);
  void fetch(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Done done);
  void put(void* queue, std::vector<DeviceCopy> copies, DeviceEventPtr after, Device::Queued queued, Device::Done done);
  void allocate_results(void* queue, std::vector<std::size_t> n_bytes, Device::Queued queued);
  void checksums(void* queue, ByteRanges ranges, Device::Summed summed);

 private:
  struct Streams {
    explicit Streams(const GpuParts& gpu) : fetches(gpu, Direction::kToHost), puts(gpu, Direction::kToGpu) {}

    CopyStream fetches;
    CopyStream puts;
  };

  Gpu(const GpuContext& context, CUdevice device, const CUuuid& uuid, int n_visible, Result<LoadedKernels> kernels)
      : context_(context),
        uuid_(uuid),
        n_visible_(n_visible),
        kernels_(std::move(kernels)),
        events_(context),
        pinned_(context),
        results_(context, device),
        thread_(context) {}

  // Called by jobs of the GPU's thread.
  void when_ready(bool are_pinned, const DeviceEventPtr& after, Device::Done copy);
  void put_now(void* queue, std::vector<DeviceCopy> copies, const DeviceEventPtr& after, const Device::Queued& queued,
               const Device::Done& done);
  Result<Streams*> streams_of(void* queue);
  Result<std::shared_ptr<std::byte>> allocate(void* queue, CUstream stream, std::size_t n_bytes);
  Result<Device::Put> allocate_all(void* queue, const std::vector<std::size_t>& n_bytes);
  void free_after(void* queue, CUdeviceptr memory);
  std::vector<CUdeviceptr> take_dropped(void* queue, CUdeviceptr memory);

  const GpuContext context_;
  const CUuuid uuid_;
  const int n_visible_;
  const Result<LoadedKernels> kernels_;  // or why there are none
  Events events_;
  PinnedMemory pinned_;
  MemoryPool results_;
  std::map<void*, Streams> streams_;  // by the caller's stream; the thread's own
  DeviceThread thread_;
  std::mutex mutex_;
  std::map<void*, std::vector<CUdeviceptr>> dropped_;  // by the caller's stream, while that is captured
};

}  // namespace ciranda::cuda
