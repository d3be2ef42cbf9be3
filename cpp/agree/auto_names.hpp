// AutoNames: numbers for requests without a name, or with a name that several requests share; the request's name is
// then the shared name and the number. Ranks that make the same calls in the same order get the same names. Each shared
// name of each lane has its own count; between two ranks, each direction has its own. When all ranks have joined,
// counts restart, because some ranks have made fewer calls.
//
// A call gets its number, in the order of calls, when the progress loop takes it in or when it is executed at once.
//
// Called by ProgressLoop, RoundsInMemory, Lane and Lanes, through WorldParts and LaneParts, and by Engine; one thread
// (the holder of the progress lock), except Names::ops, from which Engine takes operations on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "agree/persistent_ops.hpp"
#include "agree/process_sets.hpp"
#include "agree/unnamed.hpp"
#include "base/thread_annotations.hpp"
#include "call/request.hpp"

namespace ciranda {

// Whether the request shares its name with others and needs a number. Requests about process sets need none.
inline bool is_numbered(const Request& request) {
  const Subject subject = info(request.signature.collective).subject;
  return !request.is_cacheable && (subject == Subject::kTensors || subject == Subject::kNothing);
}

class AutoNames {
 public:
  // REQUIRES: is_numbered(request), and the request has no number yet.
  void number(Request& request) {
    const LaneId lane = lane_id(request.process_set, request.lane);
    std::uint64_t& n = request.name == kUnnamed ? n_unnamed(lane) : n_calls_[{lane, request.name}];
    request.name = numbered(request.name, n++);
  }

  // The number of calls without a name on this lane so far; valid until remove_lane(). If a call is executed without a
  // request, its caller increments the count.
  std::uint64_t& n_unnamed(LaneId lane) { return n_unnamed_[lane]; }

  static std::string numbered(std::string_view shared, std::uint64_t n) {
    return std::string(shared) + "." + std::to_string(n);
  }

  // REQUIRES: the lane makes no further calls.
  void remove_lane(LaneId lane) {
    n_unnamed_.erase(lane);
    std::erase_if(n_calls_, [&](const auto& counted) { return counted.first.first == lane; });
  }

  // Resets the counts of all lanes of the set.
  void restart(std::uint32_t process_set) {
    for (auto& [lane, n] : n_unnamed_) {
      if (set_of(lane) == process_set) n = 0;
    }
    std::erase_if(n_calls_, [&](const auto& counted) { return set_of(counted.first.first) == process_set; });
  }

 private:
  std::map<LaneId, std::uint64_t> n_unnamed_;
  std::map<std::pair<LaneId, std::string>, std::uint64_t> n_calls_;
};

// The names of this rank's requests.
struct Names {
  PersistentOps ops{};
  AutoNames automatic GUARDED_BY(progress_lock){};

  // Gives a request its number, and takes the operation of its name. REQUIRES: as for AutoNames::number().
  PersistentOp* number(Request& request) REQUIRES(progress_lock) {
    automatic.number(request);
    return ops.take(lane_id(request.process_set, request.lane), request.name);
  }

  // Drops the state of a lane that has ended. REQUIRES: no reference from n_unnamed(lane) is in use any more.
  void remove_lane(LaneId lane) REQUIRES(progress_lock) {
    ops.remove_lane(lane);
    automatic.remove_lane(lane);
  }
};

}  // namespace ciranda
