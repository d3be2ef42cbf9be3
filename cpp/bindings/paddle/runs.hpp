// Runs: the runs of a program that communicate, if only every k-th does.
//
// Threads: any. begin_anew(), at the end of a world, restarts all counts.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ciranda::paddle_ops {

// Counts the runs of each name: of `every` runs the last one communicates.
class Runs {
 public:
  bool is_due(const std::string& name, int every) {
    const std::scoped_lock lock(mutex_);
    Count& count = counts_[name];
    if (++count.runs < (count.every > 0 ? count.every : every)) return false;
    count.runs = 0;
    return true;
  }

  // The number of earlier calls for that name.
  std::int64_t next(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return counts_[name].runs++;
  }

  // Restarts the count, with `every` instead of the program's interval; 0: with the program's.
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
    std::int64_t runs = 0;  // since the last that communicated
    int every = 0;          // 0: the program's
  };
  std::mutex mutex_;
  std::map<std::string, Count> counts_;
};

}  // namespace ciranda::paddle_ops
