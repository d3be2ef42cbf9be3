// Kept: memory of one kind on GPUs that was given back, to be taken again instead of freed.
//
// Called by PeerMemory, NcclRoom and spare_stream.cc; any thread. What is kept lives as long as the process,
// as the GPUs' threads do.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

namespace ciranda::cuda {

template <typename Memory>
class Kept {
 public:
  // Null if there is none that is wanted.
  static Memory* take(const auto& is_wanted) {
    const std::lock_guard lock(state().mutex);
    const auto found = std::ranges::find_if(state().all, [&](const Memory* one) { return is_wanted(*one); });
    if (found == state().all.end()) return nullptr;
    Memory* const taken = *found;
    state().all.erase(found);
    return taken;
  }
  static void give_back(Memory* memory) {
    const std::lock_guard lock(state().mutex);
    state().all.push_back(memory);
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<Memory*> all;
  };
  static State& state() {
    static State& state = *new State;
    return state;
  }
};

}  // namespace ciranda::cuda
