// NcclRoom: memory on a rank's GPU in which tensors are packed for NCCL. It is kept when it is given back, and used
// again.
//
// Called by NcclSettling, NcclShared, NcclGroup, NcclCollective and CapturedGraph; on the GPU's thread. It lives as
// long as the process.
#pragma once

#include <cstddef>

#include "backend/cuda/gpu.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class NcclRoom {
 public:
  static constexpr std::size_t kAlignment = 64;

  static Result<NcclRoom*> take(Gpu& gpu, std::size_t n_bytes);
  // REQUIRES: nothing is under way in it.
  void give_back();

  std::byte* address() const { return address_; }

 private:
  NcclRoom(Gpu& gpu, std::size_t n_bytes) : gpu_(gpu), n_bytes_(n_bytes) {}
  Status make();

  Gpu& gpu_;
  const std::size_t n_bytes_;
  std::byte* address_ = nullptr;
};

}  // namespace ciranda::cuda
