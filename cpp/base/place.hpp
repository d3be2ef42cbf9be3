// Place: on which device the memory of a tensor lies, and in the order of which of the device's queues the tensor is
// used. A plain value; by default the host's memory, which needs no queue.
//
// A call of tensors on a device takes its place in their queues when it is made: it reads the input after what the
// queue was given before, and its result is there for what the queue is given after the call is complete. That is so
// without the host waiting for the device, as for NCCL: the call is complete once the result's copy is in the queue.
#pragma once

#include <cstdint>
#include <string>

namespace ciranda {

// Numbers are DLPack's (DLDeviceType). Which there are beside the host: backend/registry.hpp.
enum class DeviceType : std::int32_t { kHost = 1 };

struct Place {
  DeviceType type = DeviceType::kHost;
  std::int32_t index = 0;  // of the process's devices of that type
  void* queue = nullptr;   // of the device, as its own interface has it (a cudaStream_t); outlives what it is given

  bool is_host() const { return type == DeviceType::kHost; }
  bool is_beside(const Place& other) const { return type == other.type && index == other.index; }
};

inline std::string to_string(const Place& place) {
  if (place.is_host()) return "in host memory";
  return "on device " + std::to_string(place.index) + " of type " + std::to_string(static_cast<int>(place.type));
}

}  // namespace ciranda
