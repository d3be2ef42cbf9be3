// Backend: executes plans over memory of one type, among the ranks of one mesh. A lane has one for each type of memory
// (backend/backends.hpp), and each plan goes to the one where its tensors lie.
//
// Called by DataPlane, through Backends; implemented by NativeBackend, PeerBackend and NcclBackend; made by rows of
// registry.hpp; one thread (the holder of the progress lock). Plans run one after the other, in the order of the
// response log. No method blocks: a running collective is a state machine.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/way.hpp"
#include "collective/arena_session.hpp"
#include "collective/running_collective.hpp"
#include "fuse/plan.hpp"

namespace ciranda {

struct Started {
  std::unique_ptr<RunningCollective> collective;  // null: no bytes have to move between ranks, and the plan is done
  std::string_view algorithm = {};                // the name of its algorithm, a constant; empty: none
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Starts a plan. The plan must outlive the collective, which must be destroyed before the next start().
  virtual Started start(const Plan& plan) = 0;

  // Ends what was started, without the other ranks: when this returns, the backend no longer accesses the memory of any
  // plan. Called before the running collective is destroyed. Nothing is started afterwards. Idempotent.
  virtual void abort() = 0;

  // --- for backends of devices. Before the first plan of a lane, its ranks settle once whether they can use this
  // --- backend: either all of them do, or none.

  // The lane's position in the shared memory of its members, which outlives this; null if they have none.
  virtual void share(ArenaSession* /*session*/) {}
  // Settles this, for tensors at this place and calls that go this way. Null: it is settled at once. All members call
  // this at the same position in the log.
  virtual std::unique_ptr<RunningCollective> settle(const Place& /*place*/, Way /*way*/) { return nullptr; }
  // Once it is settled: ok if plans can be started, which all members can or none; else the reason.
  virtual Status usable() const { return Status::ok_status(); }
  // The same if plans go another way than was asked for: why. Internal on the one rank that has to say so.
  virtual Status detour() const { return Status::ok_status(); }
  // What members could do better with their devices, on the one rank that has to say so; empty: nothing. REQUIRES: the
  // members are all ranks.
  virtual std::string advice() const { return ""; }
  // Whether graphs of the program have work of this, and may be launched at any time.
  virtual bool is_in_graphs() const { return false; }
};

}  // namespace ciranda
