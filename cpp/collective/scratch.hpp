// Scratch: memory for data in transit, which algorithms use one after the other, so that a call need not get zeroed
// pages from the system.
//
// Keeps the last allocation for reuse; one above kMostKept is freed at the next take().
// Called by direct_allreduce_by_hosts.cc, direct_allreduce_doubling.cc, direct_allreduce_one_shot.cc,
// direct_allreduce_two_shot.cc and direct_reducescatter.cc, through launch.hpp; owned by NativeBackend; one thread (the
// holder of the progress lock).
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace ciranda {

class Scratch {
 public:
  // Aligned to a cache line; contents are arbitrary. Invalidates the memory of the call before.
  std::span<std::byte> take(std::size_t n_bytes) {
    if (n_bytes > n_bytes_ || n_bytes_ > kMostKept) {
      memory_.reset();  // before the next is allocated
      memory_.reset(static_cast<std::byte*>(::operator new(n_bytes, kLine)));
      n_bytes_ = n_bytes;
    }
    return {memory_.get(), n_bytes};
  }

 private:
  static constexpr std::size_t kMostKept = 16 << 20;
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kLine); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t n_bytes_ = 0;
};

}  // namespace ciranda
