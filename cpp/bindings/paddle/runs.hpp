// Runs: tells which runs of a program communicate, if only every k-th run does.
//
// Threads: any. begin_anew(), at the end of a world, restarts all counts.
//
// Called by ops.cc.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ciranda::paddle_ops {

// Counts the runs of each name. The last of every `every` runs communicates.
class Runs {
 public:
  bool is_due(const std::string& name, int every) {
    const std::scoped_lock lock(mutex_);
    Count& count = counts_[name];
    if (++count.runs < (count.every > 0 ? count.every : every)) return false;
    count.runs = 0;
    return true;
  }

  // Returns the number of earlier calls for this name.
  std::int64_t next(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return counts_[name].runs++;
  }

  // Restarts the count, with the interval `every` instead of the program's; 0 restores the program's.
  void set_interval(const std::string& name, int every) {
    const std::scoped_lock lock(mutex_);
    counts_[name] = {0, every};
  }

  void begin_anew() {
    const std::scoped_lock lock(mutex_);
    for (auto& [name, count] : counts_) count.runs = 0;
  }

 private:
  struct Count {
    std::int64_t runs = 0;  // since the last run that communicated
    int every = 0;          // the interval; 0: the program's
  };
  std::mutex mutex_;
  std::map<std::string, Count> counts_;
};

}  // namespace ciranda::paddle_ops
