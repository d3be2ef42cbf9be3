#include "backend/cuda/nccl_room.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace ciranda::cuda {
namespace {

// What was given back.
struct KeptRooms {
  std::mutex mutex;
  std::vector<NcclRoom*> all;
};

KeptRooms& kept_rooms() {
  static KeptRooms& kept_rooms = *new KeptRooms;  // as long as the GPUs' threads
  return kept_rooms;
}

}  // namespace

Result<NcclRoom*> NcclRoom::take(Gpu& gpu, std::size_t n_bytes) {
  {
    const std::lock_guard lock(kept_rooms().mutex);
    const auto found = std::ranges::find_if(
        kept_rooms().all, [&](const NcclRoom* one) { return &one->gpu_ == &gpu && one->n_bytes_ == n_bytes; });
    if (found != kept_rooms().all.end()) {
      NcclRoom* const room = *found;
      kept_rooms().all.erase(found);
      return room;
    }
  }
  auto made = std::unique_ptr<NcclRoom>(new NcclRoom(gpu, n_bytes));
  if (Status status = made->make(); !status.ok()) return status;
  return made.release();
}

void NcclRoom::give_back() {
  const std::lock_guard lock(kept_rooms().mutex);
  kept_rooms().all.push_back(this);
}

Status NcclRoom::make() {
  const GpuContext& gpu = gpu_.parts().context;
  CUdeviceptr memory = 0;
  if (Status status = gpu.check(gpu.driver.cuMemAlloc(&memory, n_bytes_), "cuMemAlloc"); !status.ok()) return status;
  address_ = reinterpret_cast<std::byte*>(memory);
  const CUresult made = gpu.driver.cuStreamCreateWithPriority(&stream_, kStreamNonBlocking, 0);
  Status status = gpu.check(made, "cuStreamCreateWithPriority");
  if (!status.ok()) gpu.driver.cuMemFree(memory);
  return status;
}

}  // namespace ciranda::cuda
