// CoordinatorOptions: what a coordinator is told of its lane, and of the settings, when it is made.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "agree/messages.hpp"
#include "base/agreement_limits.hpp"

namespace ciranda {

// How long is waited for who does not come, or move.
struct StallLimits {
  std::chrono::nanoseconds warning{0};   // 0: never
  std::chrono::nanoseconds shutdown{0};  // 0: never
  // In which each is asked whether it lives; 0: never.
  std::chrono::nanoseconds interval() const { return warning.count() > 0 ? warning : shutdown; }
};

struct CoordinatorOptions {
  int size = 1;
  std::vector<int> ranks;          // the members' ranks in the world, ascending; empty: 0 to size - 1
  std::vector<std::string> hosts;  // label by rank, for messages; may be empty
  std::size_t fusion_threshold_bytes = 128 << 20;
  std::size_t cache_capacity = 65536;
  bool learned_order = true;
  bool reports_groups = false;  // ranks are told the learned groups, and may report them
  std::size_t most_groups = std::numeric_limits<std::size_t>::max();  // of a plan, about
  // How ranks may carry out small calls that all wait for; by messages only in a lane that is never taken down.
  Direct direct = Direct::kNot;
  AgreementLimits limits;
  std::uint64_t check_interval = 0;  // after how many entries results are compared; 0: never
  StallLimits stall;
  // Every call is waited for before the next, whatever threads there are: ranks that make theirs in different orders
  // wait for each other for ever, which is told by failing them when the warning is due.
  bool fails_other_orders = false;

  bool has_buffers() const { return size == 2; }  // as for room_for() (agree/round_places.hpp)
};

}  // namespace ciranda
