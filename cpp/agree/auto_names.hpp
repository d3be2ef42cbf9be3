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
#include <tuple>

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
    const bool is_of_world = request.process_set == 0 && request.lane == 0 && request.name == kUnnamed;
    std::uint64_t& n = is_of_world ? n_unnamed_ : n_calls_[{request.process_set, request.lane, request.name}];
    request.name = numbered(request.name, n++);
  }

  // How many calls without a name the world's first lane has seen. One that is carried out without a request is
  // counted by itself.
  std::uint64_t n_unnamed() const { return n_unnamed_; }
  void count_unnamed() { ++n_unnamed_; }
  // REQUIRES: there was one.
  std::string last_unnamed() const { return numbered(kUnnamed, n_unnamed_ - 1); }

  // On all lanes of the set.
  void restart(std::uint32_t process_set) {
    if (process_set == 0) n_unnamed_ = 0;
    std::erase_if(n_calls_, [&](const auto& counted) { return std::get<0>(counted.first) == process_set; });
  }

 private:
  static std::string numbered(std::string_view shared, std::uint64_t n) {
    return std::string(shared) + "." + std::to_string(n);
  }

  std::uint64_t n_unnamed_ = 0;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::uint64_t> n_calls_;
};

}  // namespace ciranda
