// The kernels' code for GPUs, which was compiled when the library was (tools/make_cubins.py).
//
// Pure; any thread; cannot fail. Each image has all kernels of launches.hpp, and lives as long as the process.
//
// Called by CudaDevice (cuda_device.cc); best_image() also by embedded_images.cc; defined there or in no_images.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ciranda::cuda {

// The image for a GPU of a compute capability, as 90 for 9.0: machine code, or PTX, which ends with a zero byte, for a
// GPU that is newer than the library. cuModuleLoadData takes both. Empty: the GPU is too old, or this library was built
// without NVRTC.
std::span<const std::byte> image_for(int compute_capability);

// False: this library was built without NVRTC.
bool has_images();

// A row of the file of images, which ends with a row of zeros.
struct ImageRow {
  std::uint32_t architecture;  // a compute capability
  std::uint32_t is_ptx;
  std::uint64_t offset;  // from the begin of the file
  std::uint64_t n_bytes;
};

// The row that image_for() takes. A GPU runs machine code for its own major number and a minor number that is not
// larger; its driver compiles PTX for any capability that is not larger. Null: none.
const ImageRow* best_image(std::span<const ImageRow> rows, int compute_capability);

}  // namespace ciranda::cuda
