// Unnamed: names for requests that have none. Ranks that make the same calls in the same order get the same names:
// calls are counted for each lane by itself, and between two ranks for each direction. When all ranks have joined,
// counting begins anew, as some have made fewer calls.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "request/request.hpp"

namespace ciranda {

class Unnamed {
 public:
  std::string next(const Request& request) {
    const int sender = request.signature.collective == Collective::kTransfer ? request.signature.root : -1;
    const std::lock_guard lock(mutex_);
    return "noname." + std::to_string(n_calls_[{request.process_set, request.lane, sender}]++);
  }

  void restart(std::uint32_t process_set, std::uint32_t lane) {
    const std::lock_guard lock(mutex_);
    std::erase_if(n_calls_, [&](const auto& counted) {
      return std::get<0>(counted.first) == process_set && std::get<1>(counted.first) == lane;
    });
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, int>, std::uint64_t> n_calls_;
};

}  // namespace ciranda
