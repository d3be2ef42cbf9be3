// Place: the device that holds a tensor's memory, and the device's queue that orders the uses of the tensor. A plain
// value; by default host memory, which needs no queue.
//
// A call with tensors on a device reads its inputs after all work that their queues had been given before. When it is
// done, its results may still be under way: Operation::order() makes a queue wait for them. The host waits for neither.
//
// Used by DeviceEvent, Device, NcclSettling, OutputMemory, Request, Call, Plan, Staged, translate.hpp and
// bindings/python/; a plain value.
#pragma once

#include <cstdint>
#include <string>

#include "ciranda/ciranda.h"

namespace ciranda {

// Numbers are DLPack's (DLDeviceType). backend/registry.hpp has the types beside the host.
enum class DeviceType : std::int32_t { kHost = CIRANDA_HOST, kCuda = CIRANDA_CUDA };

struct Place {
  DeviceType type = DeviceType::kHost;
  std::int32_t index = 0;  // among the process's devices of that type
  void* queue = nullptr;   // the device's own type of queue (a cudaStream_t); outlives the work queued on it

  bool is_host() const { return type == DeviceType::kHost; }
  bool is_beside(const Place& other) const { return type == other.type && index == other.index; }
};

// REQUIRES: it is not the host.
inline std::string device_name(const Place& place) {
  if (place.type == DeviceType::kCuda) return "GPU " + std::to_string(place.index);
  return "device " + std::to_string(place.index) + " of type " + std::to_string(static_cast<int>(place.type));
}

inline std::string to_string(const Place& place) {
  return place.is_host() ? "in host memory" : "on " + device_name(place);
}

}  // namespace ciranda
