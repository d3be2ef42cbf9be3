// KeptForLanes: what is for lanes that cannot take it yet, in the order in which it came. One thread (the holder of the
// progress lock).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"

namespace ciranda {

template <typename T>
class KeptForLanes {
 public:
  struct Kept {
    LaneId lane;
    T item;
  };

  std::size_t size() const { return kept_.size(); }
  bool has_any_for(LaneId lane) const {
    return std::any_of(kept_.begin(), kept_.end(), [lane](const Kept& kept) { return kept.lane == lane; });
  }
  // Each lane once.
  std::vector<LaneId> lanes() const {
    std::vector<LaneId> lanes;
    for (const Kept& kept : kept_) {
      if (std::find(lanes.begin(), lanes.end(), kept.lane) == lanes.end()) lanes.push_back(kept.lane);
    }
    return lanes;
  }

  void keep(LaneId lane, T item) { kept_.push_back({lane, std::move(item)}); }

  // What is taken is kept no longer.
  std::vector<T> take(LaneId lane) {
    const auto is_for_another = [lane](const Kept& kept) { return kept.lane != lane; };
    const auto first = std::stable_partition(kept_.begin(), kept_.end(), is_for_another);
    std::vector<T> taken;
    for (auto at = first; at != kept_.end(); ++at) taken.push_back(std::move(at->item));
    kept_.erase(first, kept_.end());
    return taken;
  }
  std::vector<Kept> take_all() { return std::exchange(kept_, {}); }

 private:
  std::vector<Kept> kept_;
};

}  // namespace ciranda
