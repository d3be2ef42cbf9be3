#include "backend/cuda/nccl_room.hpp"

#include <memory>

#include "backend/cuda/kept.hpp"

namespace ciranda::cuda {

Result<NcclRoom*> NcclRoom::take(Gpu& gpu, std::size_t n_bytes) {
  const auto fits = [&](const NcclRoom& one) { return &one.gpu_ == &gpu && one.n_bytes_ == n_bytes; };
  if (NcclRoom* const kept = Kept<NcclRoom>::take(fits); kept != nullptr) return kept;
  auto made = std::unique_ptr<NcclRoom>(new NcclRoom(gpu, n_bytes));
  if (Status status = made->make(); !status.ok()) return status;
  return made.release();
}

void NcclRoom::give_back() { Kept<NcclRoom>::give_back(this); }

Status NcclRoom::make() {
  const GpuContext& gpu = gpu_.parts().context;
  CUdeviceptr memory = 0;
  if (Status status = gpu.check(gpu.driver.cuMemAlloc(&memory, n_bytes_), "cuMemAlloc"); !status.ok()) return status;
  address_ = reinterpret_cast<std::byte*>(memory);
  return Status::ok_status();
}

}  // namespace ciranda::cuda
