// The registry: one row for each type of device, with its memory and, if it has one, its backend. Host memory needs no
// row: every lane has the native backend (backend/backends.hpp).
//
// A new device is a folder under backend/, which defines its row's functions, and the row. It needs a Device. It may
// also have a Backend, which executes calls in the device's memory if their way is Way::kPeer (agree/ways.hpp). All
// other calls are staged in host memory.
// Called by Engine and examine_devices(); rows used by Backends, WorldParts, Staged and connect(); any thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.hpp"
#include "backend/device.hpp"
#include "base/config.hpp"
#include "base/exported.hpp"
#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct BackendRow {
  DeviceType memory;      // of the device
  std::string_view name;  // in messages
  // Creates a backend for the ranks of one mesh, which outlives it. It may find the device later, by `device`. Null:
  // its tensors are always staged.
  std::unique_ptr<Backend> (*make)(Mesh& mesh, const Config& config, FindDevice* device) = nullptr;
  FindDevice* device = nullptr;
};

// The rows of this build.
CIRANDA_EXPORTED std::span<const BackendRow> all_backends();

}  // namespace ciranda
