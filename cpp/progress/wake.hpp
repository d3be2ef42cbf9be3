// Wake: lets threads that may outlive an engine wake its progress loop, as long as it is there.
#pragma once

#include <mutex>

#include "transport/mesh.hpp"

namespace ciranda {

// Any thread. Held by a shared_ptr; the engine ends it before the mesh is gone.
class Wake {
 public:
  explicit Wake(Mesh& mesh) : mesh_(&mesh) {}

  void ring() {
    const std::lock_guard lock(mutex_);
    if (mesh_ != nullptr) mesh_->kick();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    mesh_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Mesh* mesh_;
};

}  // namespace ciranda
