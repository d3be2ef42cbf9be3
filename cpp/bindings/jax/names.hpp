// Names: detects two calls with the same name in one run of a program. This happens if a compiled function has two uses
// in a program, which src/ciranda/jax/_uses.py prevents. Ranks that reach the calls in different orders would match one
// with the other, without an error.
//
// Threads: any. One entry is kept for each name that was ever used.
//
// Called by CollectiveCall.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace ciranda::jax {

class Names {
 public:
  // A run of a program. Its number is not unique: jaxlib 0.5.3 gives runs of identical programs the same numbers.
  struct Run {
    std::string program;
    std::int64_t run = 0;
    bool operator==(const Run&) const = default;
  };

  // Records that `run` reaches `call`, a position in a compiled program; this may happen many times. False if another
  // position has used the name in the same run.
  bool note(const std::string& name, const Run& run, const void* call) {
    const std::lock_guard guard(lock_);
    Last& last = last_[name];
    const bool is_twice = last.call != nullptr && last.run == run && last.call != call;
    last = {run, call};
    return !is_twice;
  }

 private:
  struct Last {
    Run run;
    const void* call = nullptr;
  };
  std::mutex lock_;
  std::unordered_map<std::string, Last> last_;
};

}  // namespace ciranda::jax
