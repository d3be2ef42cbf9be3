// Way: the kind of memory through which the tensors of a call travel. HomeId: where a rank's tensors lie, as it reports
// that; the coordinator of the lane chooses the way by it (agree/ways.hpp). Neither is part of a signature.
// Used by Request, RequestMessage, Ways, WayExpected, Participant, Staged, DataPlane and Backend; plain values.
#pragma once

#include <cstdint>

namespace ciranda {

enum class Way : std::uint8_t {
  kHost,    // host memory, in which all tensors lie
  kStaged,  // host memory, where tensors of devices are staged
  kPeer,    // memory of devices that all ranks map; one rank's own
  kNccl,    // between GPUs, each of which is one rank's
  kGraph,   // the same, as part of the graph that each rank captures
};
constexpr bool is_on_device(Way way) { return way > Way::kStaged; }
constexpr bool is_by_nccl(Way way) { return way == Way::kNccl || way == Way::kGraph; }

// A device, if all tensors of the call lie on it, and it may go by memory of devices.
using HomeId = std::uint32_t;
inline constexpr HomeId kHostHome = 0;    // host memory
inline constexpr HomeId kStagedHome = 1;  // a device whose tensors are always staged, or beside others in host memory
constexpr HomeId home_on(int device) { return kStagedHome + 1 + static_cast<HomeId>(device); }
constexpr bool may_be_on_device(HomeId home) { return home > kStagedHome; }
// Beside the number: the call is to be part of a graph that its rank captures.
inline constexpr HomeId kCaptured = HomeId{1} << 31;
constexpr bool is_captured(HomeId home) { return (home & kCaptured) != 0; }
constexpr HomeId without_capture(HomeId home) { return home & ~kCaptured; }

}  // namespace ciranda
