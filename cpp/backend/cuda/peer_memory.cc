#include "backend/cuda/peer_memory.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace ciranda::cuda {
namespace {

constexpr std::size_t kSlotsAndRooms = 4;

// The memory that was given back, for reuse.
struct Kept {
  std::mutex mutex;
  std::vector<std::pair<const Gpu*, PeerMemory*>> all;
};

Kept& kept() {
  static Kept& kept = *new Kept;  // as long as the GPUs' threads
  return kept;
}

}  // namespace

Result<PeerMemory*> PeerMemory::take(Gpu& gpu, std::size_t slot_bytes) {
  {
    const std::lock_guard lock(kept().mutex);
    const auto found = std::ranges::find_if(kept().all, [&](const auto& one) {
      return one.first == &gpu && one.second->slot_bytes() <= slot_bytes && one.second->slot_bytes() >= slot_bytes / 4;
    });
    if (found != kept().all.end()) {
      PeerMemory* const memory = found->second;
      kept().all.erase(found);
      return memory;
    }
  }
  auto made = std::unique_ptr<PeerMemory>(new PeerMemory(gpu, slot_bytes));
  if (Status status = made->make(); !status.ok()) return status;
  return made.release();
}

void PeerMemory::give_back() {
  const std::lock_guard lock(kept().mutex);
  kept().all.emplace_back(&gpu_, this);
}

Status PeerMemory::make() {
  const GpuContext& gpu = gpu_.parts().context;
  CUdeviceptr memory = 0;
  CUresult outcome = gpu.driver.cuMemAlloc(&memory, kSlotsAndRooms * slot_bytes_);
  for (int halvings = 0; outcome == CUresult::kOutOfMemory && halvings < 2; ++halvings) {
    slot_bytes_ /= 2;
    outcome = gpu.driver.cuMemAlloc(&memory, kSlotsAndRooms * slot_bytes_);
  }
  if (Status status = gpu.check(outcome, "cuMemAlloc"); !status.ok()) return status;
  address_ = reinterpret_cast<std::byte*>(memory);
  Status status = gpu.check(gpu.driver.cuIpcGetMemHandle(&handle_, memory), "cuIpcGetMemHandle");
  if (status.ok()) {
    const CUresult made = gpu.driver.cuStreamCreateWithPriority(&stream_, kStreamNonBlocking, 0);
    status = gpu.check(made, "cuStreamCreateWithPriority");
  }
  if (!status.ok()) gpu.driver.cuMemFree(memory);
  return status;
}

}  // namespace ciranda::cuda
