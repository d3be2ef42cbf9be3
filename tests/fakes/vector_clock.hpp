// VectorClock: which operations have happened before, as the number of the last one of each stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ciranda::fakes {

// One operation: a stream, and its number among the stream's operations, from 1 on.
struct Moment {
  unsigned stream = 0;
  std::uint64_t position = 0;
};

class VectorClock {
 public:
  bool covers(const Moment& moment) const {
    const auto at = find(moment.stream);
    return at != last_.end() && at->first == moment.stream && at->second >= moment.position;
  }

  void add(const Moment& moment) {
    const auto at = find(moment.stream);
    if (at == last_.end() || at->first != moment.stream) {
      last_.emplace(at, moment.stream, moment.position);
    } else {
      last_[static_cast<std::size_t>(at - last_.begin())].second = std::max(at->second, moment.position);
    }
  }

  void join(const VectorClock& other) {
    for (const auto& [stream, position] : other.last_) add({stream, position});
  }

 private:
  using Last = std::vector<std::pair<unsigned, std::uint64_t>>;  // by stream

  Last::const_iterator find(unsigned stream) const {
    return std::lower_bound(last_.begin(), last_.end(), stream,
                            [](const auto& entry, unsigned wanted) { return entry.first < wanted; });
  }

  Last last_;
};

}  // namespace ciranda::fakes
