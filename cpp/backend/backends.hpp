// Backends: the backends of one lane: the native one, for host memory, and one for each type of device whose row in the
// registry makes one.
//
// Called by DataPlane; made by Lane; one thread (the holder of the progress lock).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "backend/native.hpp"
#include "backend/registry.hpp"
#include "base/config.hpp"
#include "collective/arena_session.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class Backends {
 public:
  // For the ranks of `mesh`, which outlives this.
  Backends(Mesh& mesh, const Config& config, std::span<const BackendRow> rows) : native_(mesh, native_options(config)) {
    for (const BackendRow& row : rows) {
      if (row.make != nullptr) of_devices_.emplace(row.memory, row.make(mesh, config, row.device));
    }
  }

  // By its own interface, for what no other backend can do.
  NativeBackend& native() { return native_; }
  const NativeBackend& native() const { return native_; }

  // The backend for memory at this place. REQUIRES: host memory, or a device whose row makes a backend.
  Backend& at(const Place& place) {
    const auto found = of_devices_.find(place.type);
    return found == of_devices_.end() ? native_ : *found->second;
  }

  // The native backend does not use this arena; those of devices do. Without this they share the native backend's.
  void use_on_devices(SharedArena& arena) { session_of_devices_.emplace(arena); }
  // Gives the lane's shared memory to the backends of devices. REQUIRES: the arena is settled, and this is not moved
  // any more.
  void share_arena() {
    ArenaSession* const session = session_of_devices_ ? &*session_of_devices_ : native_.session();
    for (const auto& [memory, backend] : of_devices_) backend->share(session);
  }

  // See Backend::is_in_graphs().
  bool are_in_graphs() const {
    return std::ranges::any_of(of_devices_, [](const auto& each) { return each.second->is_in_graphs(); });
  }
  // Aborts each backend: see Backend::abort().
  void abort() {
    native_.abort();
    for (const auto& [memory, backend] : of_devices_) backend->abort();
  }

 private:
  NativeBackend native_;
  std::optional<ArenaSession> session_of_devices_;
  std::map<DeviceType, std::unique_ptr<Backend>> of_devices_;
};

}  // namespace ciranda
