// Bells: those of other ranks, opened as they are first rung. However many there are, few descriptors are held.
//
// Called by SocketMesh and announce_end(); one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <utility>

#include "transport/bell.hpp"

namespace ciranda {

// Where a bell is: the process id and the fd() that its owner reports.
using BellPlace = std::pair<pid_t, int>;

class Bells {
 public:
  // Others are opened each time, which takes some microseconds.
  static constexpr std::size_t kMostHeld = 32;

  // False: it could not be opened, and is not rung.
  bool ring(const BellPlace& place) {
    const auto held = held_.find(place);
    if (held != held_.end()) {
      held->second.ring();
      return true;
    }
    auto bell = Bell::open(place.first, place.second);
    if (!bell.ok() && !held_.empty()) {  // there may be no descriptor left
      held_.erase(held_.begin());
      bell = Bell::open(place.first, place.second);
    }
    if (!bell.ok()) return false;
    bell.value().ring();
    if (held_.size() < kMostHeld) held_.emplace(place, std::move(bell).value());
    return true;
  }
  std::size_t n_held() const { return held_.size(); }

 private:
  std::map<BellPlace, Bell> held_;
};

}  // namespace ciranda
