// PushedNames: the names of calls that are in MXNet's queues or pending.
//
// A name may be pushed again before its call has ended if MXNet runs the second call after the first, because one
// writes an array that the other uses, as with the gradients of the next step. Otherwise both would be pending at the
// same time, and the call is refused.
//
// Threads: any.
//
// Called by Running.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace ciranda::mxnet {

// The arrays that a call reads and writes, as values of memory_of().
struct Uses {
  std::vector<const void*> read;
  std::vector<const void*> written;

  bool follows(const Uses& earlier) const {
    return meet(written, earlier.written) || meet(written, earlier.read) || meet(read, earlier.written);
  }

 private:
  static bool meet(const std::vector<const void*>& some, const std::vector<const void*>& others) {
    return std::any_of(some.begin(), some.end(),
                       [&](const void* each) { return std::find(others.begin(), others.end(), each) != others.end(); });
  }
};

class PushedNames {
 public:
  // The world, the process set's number with its lane, and the name.
  using Key = std::tuple<const void*, std::uint64_t, std::string>;

  // Adds a call. False if its name is in use, unless MXNet will run this call after the last call of the name: because
  // one writes an array that the other uses, or because `is_chained`.
  bool begin(const Key& key, const Uses& uses, bool is_chained) {
    const std::lock_guard guard(lock_);
    const auto [found, is_new] = pushed_.try_emplace(key);
    if (!is_new && !is_chained && !uses.follows(found->second.last)) return false;
    ++found->second.n_calls;
    found->second.last = uses;
    return true;
  }

  void end(const Key& key) {
    const std::lock_guard guard(lock_);
    const auto found = pushed_.find(key);
    if (found != pushed_.end() && --found->second.n_calls == 0) pushed_.erase(found);
  }

  // The number of names in use.
  std::size_t count() {
    const std::lock_guard guard(lock_);
    return pushed_.size();
  }

 private:
  struct Pushed {
    std::size_t n_calls = 0;
    Uses last;
  };
  std::mutex lock_;
  std::map<Key, Pushed> pushed_;
};

}  // namespace ciranda::mxnet
