#include "backend/cuda/peer_memory.hpp"

#include <memory>

#include "backend/cuda/kept.hpp"

namespace ciranda::cuda {
namespace {

constexpr std::size_t kSlotsAndRooms = 4;

}  // namespace

Result<PeerMemory*> PeerMemory::take(Gpu& gpu, std::size_t slot_bytes) {
  const auto fits = [&](const PeerMemory& one) {
    return &one.gpu_ == &gpu && one.slot_bytes_ <= slot_bytes && one.slot_bytes_ >= slot_bytes / 4;
  };
  if (PeerMemory* const kept = Kept<PeerMemory>::take(fits); kept != nullptr) return kept;
  auto made = std::unique_ptr<PeerMemory>(new PeerMemory(gpu, slot_bytes));
  if (Status status = made->make(); !status.ok()) return status;
  return made.release();
}

void PeerMemory::give_back() { Kept<PeerMemory>::give_back(this); }

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
