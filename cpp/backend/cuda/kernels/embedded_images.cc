#include "backend/cuda/kernels/images.hpp"

// Embeds the file whose path is the macro CIRANDA_CUDA_IMAGES.
asm(".pushsection .rodata\n"
    ".balign 16\n"
    ".globl ciranda_cuda_images\n"
    ".hidden ciranda_cuda_images\n"
    "ciranda_cuda_images:\n"
    ".incbin \"" CIRANDA_CUDA_IMAGES
    "\"\n"
    ".popsection\n");

extern "C" [[gnu::visibility("hidden")]] const ciranda::cuda::ImageRow ciranda_cuda_images[];

namespace ciranda::cuda {

std::span<const std::byte> image_for(int compute_capability) {
  std::size_t n_rows = 0;
  while (ciranda_cuda_images[n_rows].architecture != 0) ++n_rows;
  const ImageRow* row = best_image({ciranda_cuda_images, n_rows}, compute_capability);
  if (row == nullptr) return {};
  return {reinterpret_cast<const std::byte*>(ciranda_cuda_images) + row->offset, row->n_bytes};
}

bool has_images() { return true; }

}  // namespace ciranda::cuda
