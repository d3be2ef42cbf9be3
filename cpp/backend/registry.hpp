// The registry: one row for each type of memory, with its backend and its device.
//
// A new device is a folder under backend/, which defines its row's functions, and the row. It needs a Device. It may
// also have a Backend, for plans over its own memory (as over NCCL). Its tensors are staged in host memory if some rank
// has the tensor in another type of memory. Reports do not yet tell that, so today they are always staged.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.hpp"
#include "backend/device.hpp"
#include "base/config.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

struct BackendRow {
  DeviceType memory;      // of the tensors that it executes
  std::string_view name;  // in messages
  // Creates a backend for the ranks of one mesh, which outlives it. Null: all plans are over host memory.
  std::unique_ptr<Backend> (*make)(Mesh& mesh, const Config& config) = nullptr;
  // Null function: host memory, which needs no device. Null device: this machine has none, or no driver for it.
  Device* (*device)() = nullptr;
};

// The rows of this build; the host's is first.
std::span<const BackendRow> all_backends();

// Null if there is none.
inline const BackendRow* find(std::span<const BackendRow> backends, DeviceType memory) {
  for (const BackendRow& row : backends) {
    if (row.memory == memory) return &row;
  }
  return nullptr;
}

}  // namespace ciranda
