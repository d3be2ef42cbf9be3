// What the devices of this process are good for: each is opened and tried, as `ciranda doctor` asks.
// Called by bindings/python/tables.cc; any thread, which waits for the devices.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/found_nccl.hpp"  // for its callers
#include "backend/registry.hpp"
#include "base/exported.hpp"
#include "base/status.hpp"

namespace ciranda {

struct ExaminedDevice {
  std::string name;  // "GPU 0 (GPU-5f0a11c2)"; of a type that cannot be used, that type's
  Status works;      // an event, pinned memory, and a copy there and back; or why the type cannot be used
  Status kernels;    // see Device::kernels
};

// One for each device, or one for a type of which there is none. They are tried in their default queues, which a null
// stands for.
CIRANDA_EXPORTED std::vector<ExaminedDevice> examine_devices(std::span<const BackendRow> backends = all_backends());

}  // namespace ciranda
