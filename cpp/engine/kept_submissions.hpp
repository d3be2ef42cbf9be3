// KeptSubmissions: what is for lanes that cannot take it yet, in the order in which it came. One thread (the holder of
// the progress lock).
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "agree/process_sets.hpp"
#include "execute/submission.hpp"

namespace ciranda {

class KeptSubmissions {
 public:
  bool is_empty() const { return kept_.empty(); }
  bool has_any_for(LaneId lane) const {
    return std::any_of(kept_.begin(), kept_.end(), [lane](const Kept& kept) { return kept.lane == lane; });
  }

  void keep(LaneId lane, Submission submission) { kept_.push_back({lane, std::move(submission)}); }

  // Those of one lane; they are kept no longer.
  std::vector<Submission> take(LaneId lane) {
    return take_if([lane](const Kept& kept) { return kept.lane == lane; });
  }
  std::vector<Submission> take_all() {
    return take_if([](const Kept&) { return true; });
  }
  // Each lane once.
  std::vector<LaneId> lanes() const {
    std::vector<LaneId> lanes;
    for (const Kept& kept : kept_) {
      if (std::find(lanes.begin(), lanes.end(), kept.lane) == lanes.end()) lanes.push_back(kept.lane);
    }
    return lanes;
  }

 private:
  struct Kept {
    LaneId lane;
    Submission submission;
  };

  template <typename Predicate>
  std::vector<Submission> take_if(Predicate is_wanted) {
    const auto first =
        std::stable_partition(kept_.begin(), kept_.end(), [&](const Kept& kept) { return !is_wanted(kept); });
    std::vector<Submission> taken;
    for (auto at = first; at != kept_.end(); ++at) taken.push_back(std::move(at->submission));
    kept_.erase(first, kept_.end());
    return taken;
  }

  std::vector<Kept> kept_;
};

}  // namespace ciranda
