#include "backend/cuda/kernels/images.hpp"

namespace ciranda::cuda {

const ImageRow* best_image(std::span<const ImageRow> rows, int compute_capability) {
  const auto capability = static_cast<std::uint32_t>(compute_capability);
  const ImageRow* best = nullptr;
  for (const ImageRow& row : rows) {
    const bool runs = row.is_ptx != 0 || row.architecture / 10 == capability / 10;
    if (!runs || row.architecture > capability) continue;
    const bool is_better = best == nullptr || row.is_ptx < best->is_ptx ||
                           (row.is_ptx == best->is_ptx && row.architecture > best->architecture);
    if (is_better) best = &row;
  }
  return best;
}

}  // namespace ciranda::cuda
