// Handles: the objects that a program knows by opaque handles. No handle is given out twice, so that one which is used
// after its object's end is noticed.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace ciranda::fakes {

inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> next{0x10000};
  return next.fetch_add(0x10);
}

template <typename Handle, typename Object>
class Handles {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const auto handle = reinterpret_cast<Handle>(next_handle());
    const std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // Returns null if there is no such object.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto at = objects_.find(handle);
    return at == objects_.end() ? nullptr : at->second;
  }

  std::vector<std::shared_ptr<Object>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Object>> objects;
    for (const auto& [handle, object] : objects_) objects.push_back(object);
    return objects;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto at = objects_.find(handle);
    if (at == objects_.end()) return nullptr;
    auto object = std::move(at->second);
    objects_.erase(at);
    return object;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace ciranda::fakes
