// The registry: one row for each type of device, with its memory and, if it has one, its backend. Host memory needs no
// row: every lane has the native backend (backend/backends.hpp).
//
// A new device is a folder under backend/, which defines its row's functions, and the row. It needs a Device. It may
// also have a Backend, for plans over its own memory (as over NCCL). Its tensors are staged in host memory if some rank
// has the tensor in another type of memory. Reports do not yet tell that, so today they are always staged.
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
  // Creates a backend for the ranks of one mesh, which outlives it. Null: its tensors are always staged.
  std::unique_ptr<Backend> (*make)(Mesh& mesh, const Config& config) = nullptr;
  // Returns an error if this machine has no such device, or no driver for it; it says what to do.
  Result<Device*> (*device)() = nullptr;
};

// The rows of this build.
CIRANDA_EXPORTED std::span<const BackendRow> all_backends();

}  // namespace ciranda
