#include "backend/cuda/kernels/images.hpp"

namespace ciranda::cuda {

std::span<const std::byte> image_for(int /*compute_capability*/) { return {}; }

bool has_images() { return false; }

}  // namespace ciranda::cuda
