// Runs: which runs of a program communicate, where only every k-th does.
//
// Threads: any. Counts begin anew in each circle.
#pragma once

#include <ciranda/table.h>

#include <ciranda/native/context.hpp>
#include <map>
#include <mutex>
#include <string>

namespace ciranda::paddle_ops {

// Counts the runs of each name in a circle: of `every` runs the last one communicates.
class Runs {
 public:
  bool is_due(const std::string& name, int every) {
    const native::Context context;
    const std::scoped_lock lock(mutex_);
    Count& count = counts_[name];
    if (count.circle != context.get()) {
      count.circle = context.get();
      count.runs = 0;
    }
    if (++count.runs < (count.every > 0 ? count.every : every)) return false;
    count.runs = 0;
    return true;
  }

  // Counts anew, up to `every` in place of what the program says; 0: up to that.
  void set_interval(const std::string& name, int every) {
    const std::scoped_lock lock(mutex_);
    Count& count = counts_[name];
    count.runs = 0;
    count.every = every;
  }

 private:
  struct Count {
    const ciranda_context* circle = nullptr;
    int runs = 0;   // since the last that has communicated
    int every = 0;  // 0: as the program says
  };
  std::mutex mutex_;
  std::map<std::string, Count> counts_;
};

}  // namespace ciranda::paddle_ops
