// Wake: lets the threads of a device, which may outlive an engine, wake its progress loop, and report a failure to it.
// Does nothing once the engine has ended. Any thread. Held by a shared_ptr; the engine calls end() before it destroys
// the mesh.
// Called by Staged, on threads of devices; ProgressLoop and Engine, through WorldParts.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class Wake {
 public:
  explicit Wake(Mesh& mesh) : who_(mesh.peer(mesh.rank()).text()), mesh_(&mesh) {}

  void ring() {
    const std::lock_guard lock(mutex_);
    if (mesh_ != nullptr) mesh_->kick();
  }
  // The error that all ranks get if a device of this rank has failed: names this rank.
  Status of_this_rank(const Status& why) const { return Status::internal(who_ + ": " + why.message()); }
  // A device has failed outside of a call that all ranks could be told of: the world must break. The first reason is
  // kept.
  void fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (!has_failed_.load(std::memory_order_relaxed)) failure_ = of_this_rank(why);
    has_failed_.store(true, std::memory_order_release);
    if (mesh_ != nullptr) mesh_->kick();
  }
  Status failure() const {
    if (!has_failed_.load(std::memory_order_acquire)) return Status::ok_status();
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    mesh_ = nullptr;
  }

 private:
  const std::string who_;
  mutable std::mutex mutex_;
  Mesh* mesh_;
  std::atomic<bool> has_failed_{false};
  Status failure_;
};

}  // namespace ciranda
