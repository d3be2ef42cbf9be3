// PeerMemory: memory on a rank's GPU through which it exchanges tensors with the ranks that map it: a slot for its own
// input, and a room for what it has reduced, each for even and for odd chunks. Other ranks only read it. The memory and
// its stream are kept when they are given back, and used again: memory that others have mapped must not be freed before
// they have unmapped it.
//
// Called by PeerBackend, PeerSettling, PeerCollective and PeerGroup; all functions but those of addresses on the GPU's
// thread. It lives as long as the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/gpu.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class PeerMemory {
 public:
  static constexpr std::size_t kAlignment = 64;

  // Memory with slots of this size or, if the GPU has not enough, of half or a quarter of it. REQUIRES: a multiple of
  // 4 * kAlignment.
  static Result<PeerMemory*> take(Gpu& gpu, std::size_t slot_bytes);
  // REQUIRES: no rank reads it any more.
  void give_back();

  std::size_t slot_bytes() const { return slot_bytes_; }
  std::byte* address() const { return address_; }
  const CUipcMemHandle& handle() const { return handle_; }
  CUstream stream() const { return stream_; }

  // The address of a chunk's slot or room in any rank's memory, which is mapped at `address` and has slots of
  // `slot_bytes`.
  static std::byte* slot(std::byte* address, std::size_t slot_bytes, std::uint64_t chunk) {
    return address + chunk % 2 * slot_bytes;
  }
  static std::byte* room(std::byte* address, std::size_t slot_bytes, std::uint64_t chunk) {
    return slot(address, slot_bytes, chunk) + 2 * slot_bytes;
  }

 private:
  PeerMemory(Gpu& gpu, std::size_t slot_bytes) : gpu_(gpu), slot_bytes_(slot_bytes) {}
  Status make();

  Gpu& gpu_;
  std::size_t slot_bytes_;
  std::byte* address_ = nullptr;
  CUipcMemHandle handle_{};
  CUstream stream_ = nullptr;
};

}  // namespace ciranda::cuda
