// CoordinatorOptions: the lane and the settings that a coordinator is made with. Made by LaneLog, read by Coordinator
// and its parts. Plain values.
// Used by Coordinator, Negotiations, OpenNegotiations, PlannedGroups, ReadyQueue, Ways and LaneLog; StallLimits also by
// LivenessProbe, StallDetector and AnswerWatch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "agree/messages.hpp"
#include "base/agreement_limits.hpp"

namespace ciranda {

// How long the engine waits for a rank that does not arrive, or for a transfer that does not move.
struct StallLimits {
  std::chrono::nanoseconds warning{0};   // 0: never
  std::chrono::nanoseconds shutdown{0};  // 0: never
  // The period in which each awaited rank is probed once for liveness; 0: never.
  std::chrono::nanoseconds interval() const {
    return warning.count() > 0 && shutdown.count() > 0 ? std::min(warning, shutdown) : std::max(warning, shutdown);
  }
};

struct CoordinatorOptions {
  int size = 1;
  std::vector<int> ranks;          // the members' ranks in the world, ascending; empty: 0 to size - 1
  std::vector<std::string> hosts;  // label by rank, for messages; may be empty
  std::size_t fusion_threshold_bytes = 128 << 20;
  std::size_t cache_capacity = 65536;
  bool learned_order = true;
  bool reports_groups = false;  // ranks learn the planned groups from the log, and may report by them
  std::size_t most_groups = std::numeric_limits<std::size_t>::max();  // in a plan, approximately
  // How ranks may execute small blocking calls without the log. Only a lane that is never removed may use messages.
  Direct direct = Direct::kNot;
  AgreementLimits limits;
  bool shares_memory = false;        // all members do, so what they have on devices may go by peer
  bool goes_by_nccl = false;         // what can do so
  bool adds_by_nccl = true;          // by it, what it can reduce; else by kernels of ours, of kMostInputs inputs
  std::uint64_t check_interval = 0;  // after how many entries results are compared; 0: never
  StallLimits stall;
  // All ranks wait for each call before they make the next, whatever threads they have. So ranks that make their calls
  // in different orders wait for each other for ever; their calls fail when the warning is due.
  bool fails_other_orders = false;

  bool has_buffers() const { return size == 2; }  // as for room_for() (agree/round_rooms.hpp)
};

}  // namespace ciranda
