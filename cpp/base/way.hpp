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
};
constexpr bool is_on_device(Way way) { return way > Way::kStaged; }

// A device, if all tensors of the call lie on it, and it may go by memory of devices.
using HomeId = std::uint32_t;
inline constexpr HomeId kHostHome = 0;    // host memory
inline constexpr HomeId kStagedHome = 1;  // a device whose tensors are always staged, or beside others in host memory
constexpr HomeId home_on(int device) { return kStagedHome + 1 + static_cast<HomeId>(device); }
constexpr bool may_be_on_device(HomeId home) { return home > kStagedHome; }

}  // namespace ciranda
