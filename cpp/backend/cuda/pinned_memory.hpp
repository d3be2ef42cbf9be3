// PinnedMemory: page-locked host memory, which a GPU copies from and to at the speed of the bus. Blocks are kept when
// they are freed, since the driver takes a lock, and up to milliseconds, to pin one.
//
// Any thread. Blocks may be freed at any time; this object lives as long as the process.
//
// Called by Gpu and CopyStream.
#pragma once

#include <bit>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/current_context.hpp"
#include "backend/cuda/events.hpp"

namespace ciranda::cuda {

class PinnedMemory {
 public:
  static constexpr std::size_t kLeastBytes = 4096;
  static constexpr std::size_t kMostKept = std::size_t{512} << 20;  // in blocks that nobody uses

  explicit PinnedMemory(const GpuContext& gpu) : gpu_(gpu) {}

  // Null: the driver gave none.
  std::shared_ptr<std::byte> allocate(std::size_t n_bytes) {
    const std::size_t size = std::bit_ceil(std::max(n_bytes, kLeastBytes));
    std::byte* const block = take(size);
    if (block == nullptr) return nullptr;
    return {block, [this, size](std::byte* freed) { give_back(freed, size); }};
  }

 private:
  std::byte* take(std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<std::byte*>& kept = kept_[size];
      if (!kept.empty()) {
        std::byte* const block = kept.back();
        kept.pop_back();
        n_bytes_kept_ -= size;
        return block;
      }
    }
    const CurrentContext current(gpu_.driver, gpu_.context);
    void* block = nullptr;
    const CUresult outcome = gpu_.driver.cuMemHostAlloc(&block, size, kMemHostPortable);
    return outcome == CUresult::kSuccess ? static_cast<std::byte*>(block) : nullptr;
  }

  void give_back(std::byte* block, std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (n_bytes_kept_ + size <= kMostKept) {
        kept_[size].push_back(block);
        n_bytes_kept_ += size;
        return;
      }
    }
    const CurrentContext current(gpu_.driver, gpu_.context);
    gpu_.driver.cuMemFreeHost(block);
  }

  const GpuContext gpu_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> kept_;  // by size
  std::size_t n_bytes_kept_ = 0;
};

}  // namespace ciranda::cuda
