// AutoNames: names for requests that have none of their own, or share one: the shared name and a number. Ranks that
// make the same calls in the same order get the same names: calls are counted for each shared name of each lane by
// itself, and between two ranks for each direction. When all ranks have joined, counting begins anew, as some have made
// fewer calls.
//
// A call gets its number when it is taken in, or carried out at once: both are in the order of calls.
//
// One thread (the holder of the progress lock).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "agree/persistent_ops.hpp"
#include "agree/process_sets.hpp"
#include "agree/unnamed.hpp"
#include "call/request.hpp"

namespace ciranda {

// Whether the request shares its name with others, from which a number tells it apart. What is about sets of ranks is
// told apart by that.
inline bool is_numbered(const Request& request) {
  const Subject subject = info(request.signature.collective).subject;
  return !request.is_cacheable && (subject == Subject::kTensors || subject == Subject::kNothing);
}

class AutoNames {
 public:
  // REQUIRES: is_numbered(request), and it has no number yet.
  void number(Request& request) {
    const LaneId lane = lane_id(request.process_set, request.lane);
    std::uint64_t& n = request.name == kUnnamed ? n_unnamed(lane) : n_calls_[{lane, request.name}];
    request.name = numbered(request.name, n++);
  }

  // How many calls without a name a lane has seen, for as long as this lives. One that is carried out without a request
  // is counted by who carries it out.
  std::uint64_t& n_unnamed(LaneId lane) { return n_unnamed_[lane]; }

  static std::string numbered(std::string_view shared, std::uint64_t n) {
    return std::string(shared) + "." + std::to_string(n);
  }

  // There will be no more calls of it.
  void remove_lane(LaneId lane) {
    n_unnamed_.erase(lane);
    std::erase_if(n_calls_, [&](const auto& counted) { return counted.first.first == lane; });
  }

  // On all lanes of the set.
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
  AutoNames automatic{};

  // Gives a request its number, and takes the operation of its name. REQUIRES: as of AutoNames::number().
  PersistentOp* number(Request& request) {
    automatic.number(request);
    return ops.take(lane_id(request.process_set, request.lane), request.name);
  }

  // The lane is no more. REQUIRES: nor is who counts its calls.
  void remove_lane(LaneId lane) {
    ops.remove_lane(lane);
    automatic.remove_lane(lane);
  }
};

}  // namespace ciranda
