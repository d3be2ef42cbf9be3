// NamesInUse: the names of this rank's requests that have been submitted and not completed. Each lane has names of its
// own. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "request/request.hpp"

namespace ciranda {

class NamesInUse {
 public:
  // False if the name is in use already.
  bool take(const Request& request) {
    const std::lock_guard lock(mutex_);
    bool& is_in_use = is_world(request) ? names_[request.name] : names_[key(request)];
    return !std::exchange(is_in_use, true);
  }
  void release(const Request& request) {
    const std::lock_guard lock(mutex_);
    const auto found = is_world(request) ? names_.find(request.name) : names_.find(key(request));
    if (found == names_.end()) return;
    found->second = false;
    if (!request.is_cacheable || names_.size() > kMostKept) names_.erase(found);
  }

 private:
  // Names come again, and to keep one costs less than to make it anew.
  static constexpr std::size_t kMostKept = 65536;

  static bool is_world(const Request& request) { return request.process_set == 0 && request.lane == 0; }
  static std::string key(const Request& request) {
    return request.name + '\n' + std::to_string(request.process_set) + '.' + std::to_string(request.lane);
  }

  std::mutex mutex_;
  std::unordered_map<std::string, bool> names_;  // whether it is in use
};

}  // namespace ciranda
