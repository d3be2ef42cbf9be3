// Runs: which runs of a program communicate, where only every k-th does.
//
// Threads: any. Counts begin anew in each world: at the end of one, begin_anew() is called.
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

  // How often it was called for that name before.
  std::int64_t next(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return counts_[name].runs++;
  }

  // Counts anew, up to `every` in place of what the program says; 0: up to that.
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
    std::int64_t runs = 0;  // since the last that has communicated
    int every = 0;          // 0: as the program says
  };
  std::mutex mutex_;
  std::map<std::string, Count> counts_;
};

}  // namespace ciranda::paddle_ops
