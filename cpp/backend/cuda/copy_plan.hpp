// Plans the copies of a call's tensors between the host and a GPU. A copy may take several tensors at once, which are
// packed in a buffer on the GPU.
//
// On the host the tensors lie one behind the other, so their memory is divided into windows of the size of the buffer.
// A window with few tensors is copied by a copy for each, one with many by one copy and one launch. A tensor alone is
// never packed, however long it is.
//
// Pure; any thread; cannot fail.
//
// Called by CopyStream, Gpu and PeerAlone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/device.hpp"

namespace ciranda::cuda {

enum class Direction : std::uint8_t { kToHost, kToGpu };

struct CopyStep {
  std::size_t first_part;
  std::size_t n_parts;  // 1: copied as it is

  bool is_packed() const { return n_parts > 1; }
};

struct CopyPlan {
  std::vector<DeviceCopy> parts;  // of tensors; each step's in their order on the host
  std::vector<CopyStep> steps;
  std::size_t n_packed = 0;  // parts
};

// Fewer tensors than these are copied one by one: a launch and a copy would be no fewer calls of the driver.
inline constexpr std::size_t kLeastPacked = 3;

// `buffer_bytes`: of the buffer. 0: there is none, so that nothing is packed.
CopyPlan plan_copies(std::span<const DeviceCopy> copies, Direction direction, std::size_t buffer_bytes);

// Where a copy's range is on the host.
inline const std::byte* on_host(const DeviceCopy& copy, Direction direction) {
  return direction == Direction::kToHost ? copy.to : copy.from;
}

}  // namespace ciranda::cuda
