// MemoryPool: memory of one GPU that is allocated and freed in the order of a stream, for results of calls.
//
// It is a pool of ours, which keeps up to kKeptBytes that are free. The GPU's own pool keeps none, unless the program
// has set a limit: then each result would be memory that the driver maps anew, and unmaps when the stream is next
// waited for. That limit is the program's: torch sets it for its own allocator.
//
// Called by Gpu, on the GPU's thread only. It lives as long as the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/cuda/events.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class MemoryPool {
 public:
  static constexpr std::uint64_t kKeptBytes = 64 << 20;

  MemoryPool(const GpuContext& gpu, CUdevice device) : gpu_(gpu), device_(device) {}

  // Memory that is to be freed by cuMemFreeAsync; zero: the GPU has no more. If no pool can be made, it is of the GPU's
  // own one.
  Result<CUdeviceptr> allocate(std::size_t n_bytes, CUstream stream);

 private:
  CUmemoryPool make() const;

  const GpuContext gpu_;
  const CUdevice device_;
  std::optional<CUmemoryPool> pool_;  // made when it is first used; null: it could not be
};

}  // namespace ciranda::cuda
