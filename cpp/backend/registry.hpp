// The registry: which types of memory there are, and for each how its tensors are carried out: a row.
//
// A new device is a folder under backend/, which defines its row's functions, and the row. It needs a Device. It may
// have a Backend too, for plans that name its own memory (as over NCCL); its tensors are staged in host memory where
// some rank has the tensor elsewhere, which reports do not yet say: so always, today.
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
  DeviceType memory;      // that it understands
  std::string_view name;  // in messages
  // For the ranks of one mesh, which outlives it. Null: plans name host memory alone.
  std::unique_ptr<Backend> (*make)(Mesh& mesh, const Config& config) = nullptr;
  // Null function: the host's memory, which needs none. Null device: this machine has none, or no driver for it.
  Device* (*device)() = nullptr;
};

// That of this build: the host's first.
std::span<const BackendRow> all_backends();

// Null if there is none.
inline const BackendRow* find(std::span<const BackendRow> backends, DeviceType memory) {
  for (const BackendRow& row : backends) {
    if (row.memory == memory) return &row;
  }
  return nullptr;
}

}  // namespace ciranda
