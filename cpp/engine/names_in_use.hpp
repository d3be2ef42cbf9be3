// NamesInUse: the names of this rank's requests that have been submitted and not completed. Any thread.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

namespace ciranda {

class NamesInUse {
 public:
  // False if the name is in use already.
  bool take(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.insert(name).second;
  }
  void release(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.erase(name);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> names_;
};

}  // namespace ciranda
