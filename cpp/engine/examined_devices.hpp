// Opens and tries each device of this process, for `ciranda doctor`.
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
  std::string name;  // "GPU 0 (GPU-5f0a11c2)"; the type's name if it cannot be used
  Status works;      // an event, pinned memory, a copy there and back, and a kernel if there are any; or why the type
                     // cannot be used
  Status kernels;    // see Device::kernels
};

// Returns an entry for each device, and one for a type without devices. Each device is tried in its default queue
// (null).
CIRANDA_EXPORTED std::vector<ExaminedDevice> examine_devices(std::span<const BackendRow> backends = all_backends());

}  // namespace ciranda
