// NamesInUse: the names of this rank's requests that have been submitted and not completed. Each lane has names of its
// own. Any thread.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

#include "request/request.hpp"

namespace ciranda {

class NamesInUse {
 public:
  // False if the name is in use already.
  bool take(const Request& request) {
    const std::lock_guard lock(mutex_);
    return names_.insert(key(request)).second;
  }
  void release(const Request& request) {
    const std::lock_guard lock(mutex_);
    names_.erase(key(request));
  }

 private:
  static std::string key(const Request& request) {
    if (request.process_set == 0 && request.lane == 0) return request.name;
    return request.name + '\n' + std::to_string(request.process_set) + '.' + std::to_string(request.lane);
  }

  std::mutex mutex_;
  std::unordered_set<std::string> names_;
};

}  // namespace ciranda
