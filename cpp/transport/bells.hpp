// Bells: those of other ranks, opened as they are first rung. However many there are, few descriptors are held; and one
// in reserve, so that a process at its limit wakes others too.
//
// Called by SocketMesh and announce_end(); one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <utility>

#include "base/spare_fd.hpp"
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
    return ring_new(place) || ring_with_spare(place);
  }
  std::size_t n_held() const { return held_.size(); }

 private:
  bool ring_new(const BellPlace& place) {
    auto bell = Bell::open(place.first, place.second);
    if (!bell.ok()) return false;
    bell.value().ring();
    if (held_.size() < kMostHeld) held_.emplace(place, std::move(bell).value());
    return true;
  }
  // The process may have no descriptor left.
  bool ring_with_spare(const BellPlace& place) {
    spare_.give_up();
    const bool is_rung = ring_once(place);
    spare_.keep_back();
    return is_rung;
  }
  static bool ring_once(const BellPlace& place) {
    const auto bell = Bell::open(place.first, place.second);
    if (bell.ok()) bell.value().ring();
    return bell.ok();
  }

  std::map<BellPlace, Bell> held_;
  SpareFd spare_;
};

}  // namespace ciranda
