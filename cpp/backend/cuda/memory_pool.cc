#include "backend/cuda/memory_pool.hpp"

namespace ciranda::cuda {

CUmemoryPool MemoryPool::make() const {
  CUmemPoolProps properties{};
  properties.type = CUmemAllocationType::kPinned;
  properties.location = {CUmemLocationType::kDevice, device_};
  CUmemoryPool pool = nullptr;
  if (gpu_.driver.cuMemPoolCreate(&pool, &properties) != CUresult::kSuccess) return nullptr;
  std::uint64_t kept = kKeptBytes;
  gpu_.driver.cuMemPoolSetAttribute(pool, CUmemPool_attribute::kReleaseThreshold, &kept);
  return pool;
}

Result<CUdeviceptr> MemoryPool::allocate(std::size_t n_bytes, CUstream stream) {
  if (!pool_) pool_ = make();
  CUdeviceptr memory = 0;
  const CUresult outcome = *pool_ == nullptr ? gpu_.driver.cuMemAllocAsync(&memory, n_bytes, stream)
                                             : gpu_.driver.cuMemAllocFromPoolAsync(&memory, n_bytes, *pool_, stream);
  if (outcome == CUresult::kOutOfMemory) return CUdeviceptr{0};
  if (Status status = gpu_.check(outcome, "cuMemAllocFromPoolAsync"); !status.ok()) return status;
  return memory;
}

}  // namespace ciranda::cuda
