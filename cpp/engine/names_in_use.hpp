// NamesInUse: the names of this rank's requests that have been submitted and not completed. Each lane has names of its
// own. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/auto_names.hpp"
#include "request/request.hpp"

namespace ciranda {

class NamesInUse {
 public:
  // One name; whoever keeps it can take and release it without looking for it.
  class Name {
   public:
    // False if the name is in use already.
    bool take() { return !is_in_use_.exchange(true, std::memory_order_acquire); }
    void release() { is_in_use_.store(false, std::memory_order_release); }

   private:
    friend class NamesInUse;
    std::atomic<bool> is_in_use_{false};
    bool is_kept_ = false;
  };

  // False if the name is in use already. What is numbered has a name that nobody else has.
  bool take(const Request& request) {
    if (is_numbered(request)) return true;
    const std::lock_guard lock(mutex_);
    return (is_world(request) ? names_[request.name] : names_[key(request)]).take();
  }
  void release(const Request& request) {
    if (is_numbered(request)) return;
    const std::lock_guard lock(mutex_);
    const auto found = is_world(request) ? names_.find(request.name) : names_.find(key(request));
    if (found == names_.end()) return;
    found->second.release();
    if (found->second.is_kept_) return;
    if (!request.is_cacheable || names_.size() > kMostKept) names_.erase(found);
  }

  // Of the world's first lane; lives as long as this.
  Name& keep(std::string_view text) {
    const std::lock_guard lock(mutex_);
    Name& name = names_[std::string(text)];
    name.is_kept_ = true;
    return name;
  }

 private:
  // Names come again, and to keep one costs less than to make it anew.
  static constexpr std::size_t kMostKept = 65536;

  static bool is_world(const Request& request) { return request.process_set == 0 && request.lane == 0; }
  static std::string key(const Request& request) {
    return request.name + '\n' + std::to_string(request.process_set) + '.' + std::to_string(request.lane);
  }

  std::mutex mutex_;
  std::unordered_map<std::string, Name> names_;
};

}  // namespace ciranda
