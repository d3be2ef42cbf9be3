// LoadedKernels: the kernels of kernels/ as one GPU has them: loaded into its context once, when it is opened. They are
// never unloaded.
//
// Called by CudaDevice, Gpu, checksums.hpp, CopyStream and PeerStream; any thread, but reduce() and
// checksum() only on the GPU's own.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "backend/cuda/events.hpp"
#include "backend/cuda/kernels/arguments.hpp"
#include "backend/cuda/kernels/launches.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

// Finds the image for a compute capability, as image_for() does (kernels/images.hpp). Empty: there is none.
using Images = std::span<const std::byte> (*)(int compute_capability);

class LoadedKernels {
 public:
  // Returns an error if there is no image for the GPU, or if the driver refuses it. REQUIRES: the GPU's context is the
  // thread's.
  static Result<LoadedKernels> load(const GpuContext& gpu, CUdevice device, Images images);

  // Copies all ranges by one launch. REQUIRES: the GPU's context is the thread's; the ranges' chunks are numbered by
  // kChunkBytes; their descriptions stay where they are until the launch has run.
  Status copy(const Pieces& pieces, CUstream stream) const;
  // These two look up their kernels at the first use. REQUIRES: the GPU's context is the thread's.
  Status reduce(const ReduceLaunch& reduction, CUstream stream) const;
  // Adds the checksums of the ranges' blocks to the totals. REQUIRES, too: as copy(), by kChecksumChunkBytes.
  Status checksum(const Pieces& pieces, CUstream stream) const;

 private:
  LoadedKernels(const GpuContext& gpu, int n_multiprocessors, CUmodule module)
      : gpu_(gpu), n_multiprocessors_(n_multiprocessors), module_(module) {}
  Result<CUfunction> find(Kernel kernel) const;
  Status launch(Kernel kernel, void* arguments, std::uint32_t n_blocks, CUstream stream) const;
  Status launch(CUfunction function, void* arguments, std::uint32_t n_blocks, CUstream stream) const;

  GpuContext gpu_;
  int n_multiprocessors_;
  CUmodule module_;
  CUfunction copy_bytes_ = nullptr;
  mutable std::array<CUfunction, kNumKernels> found_{};  // all but copy_bytes; used by the GPU's thread only
};

}  // namespace ciranda::cuda
