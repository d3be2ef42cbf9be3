// RunningCollective: the execution of one plan by one algorithm, as a resumable state machine.
//
// step() does a bounded piece of work (about one chunk) and never blocks, so moving data cannot delay the agreement on
// the next tensors. After a step that returned kMoved the caller wakes the peers (Mesh::notify).
// Called by DataPlane, and NativeBackend where it times one; made by the start functions of launch.hpp and
// Backend::start(), PeerAlone, PeerCollective, PeerSettling, NcclCollective, NcclSettling and NcclBackend;
// one thread (the holder of the progress lock). The plan and the mesh outlive the collective.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/device_work.hpp"
#include "base/status.hpp"

namespace ciranda {

enum class Progress : std::uint8_t {
  kStuck,  // nothing to do until a peer moves
  kMoved,  // something was done; there may be more
  kDone,
};

class RunningCollective {
 public:
  virtual ~RunningCollective() = default;
  // REQUIRES: kDone has not been returned.
  virtual Progress step() = 0;
  // The ranks for which a stuck step waits; used in messages.
  virtual std::vector<int> awaited() const = 0;

  // An error if its device has failed, so that it stays stuck.
  virtual Status status() const { return Status::ok_status(); }
  // This rank's device for which a stuck step waits, as in "on GPU 0"; empty if for none.
  virtual std::string awaited_device() const { return ""; }
  // Once it is done: the work on its device behind which the results are there. Null: they are there.
  virtual std::shared_ptr<DeviceWork> device_work() const { return nullptr; }
};

}  // namespace ciranda
