// Names: finds out that one run of a program makes two of its calls by one name, as happens where a jitted function is
// called twice in a program: ranks that come to them in different orders would match one with the other, and nobody
// would hear of it.
//
// Threads: any. It keeps one entry for each name that was ever used.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace ciranda::jax {

class Names {
 public:
  // Notes that `call` is made in the run of that number; `call` stands for a place in a compiled program, which may be
  // reached many times in a run. False if another place of the program has been reached by that name in the same run.
  bool note(const std::string& name, std::int64_t run, const void* call) {
    const std::lock_guard guard(lock_);
    Last& last = last_[name];
    const bool is_twice = last.call != nullptr && last.run == run && last.call != call;
    last = {run, call};
    return !is_twice;
  }

 private:
  struct Last {
    std::int64_t run = 0;
    const void* call = nullptr;
  };
  std::mutex lock_;
  std::unordered_map<std::string, Last> last_;
};

}  // namespace ciranda::jax
