// AutoNames: names for requests that have none of their own, or share one: the shared name and a number. Ranks that
// make the same calls in the same order get the same names: calls are counted for each shared name of each lane by
// itself, and between two ranks for each direction. When all ranks have joined, counting begins anew, as some have made
// fewer calls.
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

class AutoNames {
 public:
  std::string next(const Request& request, const std::string& shared) {
    const int sender = request.signature.collective == Collective::kTransfer ? request.signature.root : -1;
    const std::lock_guard lock(mutex_);
    return shared + "." + std::to_string(n_calls_[{request.process_set, request.lane, sender, shared}]++);
  }

  // On all lanes of the set.
  void restart(std::uint32_t process_set) {
    const std::lock_guard lock(mutex_);
    std::erase_if(n_calls_, [&](const auto& counted) { return std::get<0>(counted.first) == process_set; });
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, int, std::string>, std::uint64_t> n_calls_;
};

}  // namespace ciranda
