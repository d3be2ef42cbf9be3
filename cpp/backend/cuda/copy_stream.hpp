// CopyStream: a stream of the engine on a GPU, in which the tensors of calls are copied in one direction. Many small
// ones are copied at once: a launch packs them into a buffer of the stream's, or unpacks them (copy_plan.hpp). Where
// the GPU has no kernels, or no memory for the buffer, each is copied by itself.
//
// The bus is far slower than a GPU's memory, so a pack takes a small part of the time of its copy: both run in one
// stream, and one buffer is enough.
//
// Called by Gpu, and for its GpuParts by checksums.hpp, on the GPU's thread only. It lives as long as the process.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/copy_plan.hpp"
#include "backend/cuda/events.hpp"
#include "backend/cuda/loaded_kernels.hpp"
#include "backend/cuda/pinned_memory.hpp"

namespace ciranda::cuda {

// The parts of a GPU that its streams use.
struct GpuParts {
  const GpuContext& context;
  Events& events;
  PinnedMemory& pinned;
  const LoadedKernels* kernels;  // null: none
};

class CopyStream {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

  CopyStream(const GpuParts& gpu, Direction direction) : gpu_(gpu), direction_(direction) {}
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Creates the stream, unless it exists.
  Status open();
  // REQUIRES: it is open.
  CUstream handle() const { return handle_; }

  struct Copied {
    std::shared_ptr<const Event> event;  // passes after the copies
    std::shared_ptr<std::byte> kept;     // must live until the event has passed
  };
  // Queues the copies, after the event. If one of them cannot be queued, waits for those that were, so that the caller
  // may free their memory. REQUIRES: it is open.
  Result<Copied> copy(const std::vector<DeviceCopy>& copies, const DeviceEventPtr& after);

 private:
  CopyPlan plan(const std::vector<DeviceCopy>& copies, std::shared_ptr<std::byte>& pieces);
  bool has_buffer();
  Status queue(const CopyPlan& plan, std::byte* pieces, const DeviceEventPtr& after);
  Status queue_packed(std::span<const DeviceCopy> parts, std::byte* pieces);
  Status queue_launch(std::span<const DeviceCopy> parts, std::byte* pieces);
  Status queue_copy(const DeviceCopy& one);

  const GpuParts gpu_;
  const Direction direction_;
  CUstream handle_ = nullptr;
  std::byte* buffer_ = nullptr;  // on the GPU
};

}  // namespace ciranda::cuda
