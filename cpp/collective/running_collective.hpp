// RunningCollective: one algorithm at work on one plan, as a resumable state machine.
//
// step() does a bounded piece of work (about one chunk) and never waits: that is why moving data cannot hold up the
// agreement on the next tensors. After a step that moved something the caller tells the peers (Mesh::notify).
// One thread at a time. The plan and the mesh outlive the collective.
#pragma once

#include <cstdint>
#include <vector>

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
  // The ranks that a stuck step waits for, for a message.
  virtual std::vector<int> awaited() const = 0;
};

}  // namespace ciranda
