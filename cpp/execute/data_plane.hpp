// DataPlane: executes the response log, entry after entry, a bounded step at a time.
//
// Called by Lane, which owns it; RoundsInMemory and RoundsByMessages, to which LaneParts gives it; ProgressLoop and
// Engine, with questions. One thread: the holder of the progress lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agree/participant.hpp"
#include "agree/payload.hpp"
#include "agree/turns.hpp"
#include "backend/backends.hpp"
#include "base/thread_annotations.hpp"
#include "execute/consistency.hpp"
#include "execute/in_flight.hpp"
#include "execute/lane_arena.hpp"
#include "execute/staged_blocks.hpp"
#include "execute/unended.hpp"
#include "execute/way_expected.hpp"
#include "execute/work.hpp"

namespace ciranda {

// The arena that the ranks of a mesh create if they share memory and the mesh has none; the same on all of them.
struct ArenaOptions {
  std::size_t slot_bytes = 0;   // 0: none
  bool is_for_devices = false;  // created when a call first goes by memory of devices, and used by such calls alone
};

// Whether the log says that the entry goes by NCCL, so that it has a turn.
bool goes_by_nccl(const Participant::Execute& entry);

class DataPlane {
 public:
  // For entries with tensors on devices.
  struct OnDevices {
    WayExpected& expected;
    LaneTurns& turns;
    Unended& unended;
    std::size_t chunk_bytes = 0;  // of staged calls; 0: they are not cut
  };

  // The references outlive this, and so does the last argument.
  DataPlane(Mesh& mesh, InFlight& in_flight, Backends backends, ArenaOptions arena, OnDevices on_devices,
            const Logger& logger);

  // Adds the next entry of the log. An empty entry only takes its position in the order.
  void enqueue(Participant::Execute entry);

  // Executes an entry at once, before all queued entries. `inputs` has the inputs of all members, in their order, so no
  // other rank is needed. Fails as step() does.
  Status combine(const Participant::Execute& entry, std::span<const Payload> inputs);

  bool is_idle() const { return queue_.empty(); }

  // The algorithms by which the lane could execute a collective of `n_bytes`, and the one that it chooses.
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const {
    return backends_.native().candidates(collective, n_bytes);
  }

  // The arena for tensors in host memory. Null if the lane's members do not all share memory, or if that is not known
  // yet, or if the lane has an arena for devices alone.
  SharedArena* arena() { return is_arena_for_devices_ ? nullptr : any_arena(); }
  // The bytes of shared memory that this rank owns for the lane.
  std::size_t n_slot_bytes() { return any_arena() == nullptr ? 0 : any_arena()->part_bytes(); }

  // Executes one step. Returns whether anything moved. On an error (no memory for an output) this rank cannot continue,
  // so the world breaks.
  Result<bool> step() REQUIRES(progress_lock);

  // Takes notice of the results on devices that were still under way when their calls were done. Returns whether some
  // have ended, or why one has no result.
  Result<bool> look_at_results();
  bool awaits_results() const { return !awaited_results_.empty(); }
  // The first of them, and the work that makes it: "allreduce 'a'". REQUIRES: awaits_results().
  const std::string& awaited_result() const { return awaited_results_.front().what; }
  DeviceWork& work_of_result() { return *awaited_results_.front().work; }

  // The device of this rank for whose copies the next entry waits: "on device 0 of type 2". Empty if it waits for
  // none.
  std::string awaited_device() const REQUIRES(progress_lock);

  // The number of entries of the log that were passed to enqueue().
  std::uint64_t n_enqueued() const { return n_executed_ + queue_.size(); }
  // The number of entries of the log that are finished, though results on devices may be under way.
  std::uint64_t n_executed() const { return n_executed_; }

  // The bytes of all entries that are queued or in execution. Takes time for each request.
  std::size_t n_bytes_under_way() const;

  // Entries from log_index on will not be executed: their requests fail with `status`. If one of them may have begun,
  // all backends are aborted, so that other lanes proceed.
  void give_up_from(std::uint64_t log_index, const Status& status) REQUIRES(progress_lock);
  // Where graphs of the program have work of this lane, which they may be launched with at any time, all backends are
  // aborted. Returns whether they were.
  bool abort_graphs() {
    if (!backends_.are_in_graphs()) return false;
    backends_.abort();
    return true;
  }

  // Describes the entry in execution for a message: "allreduce 'a' and 3 more". REQUIRES: !is_idle().
  std::string describe_current() const { return describe(queue_.front()); }
  std::vector<int> awaited() const;
  // Of the next entry; kHere if it needs none. REQUIRES: !is_idle().
  Turns::State turn() const { return goes_by_nccl(queue_.front()) ? turns_.of(n_executed_) : Turns::State::kHere; }

 private:
  SharedArena* any_arena() { return arena_ ? arena_->arena() : mesh_.arena(); }
  Result<bool> has_inputs() const REQUIRES(progress_lock);
  bool may_go_in_chunks() const;
  void go_in_chunks();
  void cut();
  Result<bool> may_start(const Plan& plan) const REQUIRES(progress_lock);
  void end_plan() REQUIRES(progress_lock);
  Result<bool> are_results_queued() const REQUIRES(progress_lock);
  Result<Work> begin() REQUIRES(progress_lock);
  bool may_go_by_peer() const;
  bool cannot_be_captured() const;
  void refuse_capture() REQUIRES(progress_lock);
  Backend& peer();
  Place place() const;
  Result<Work> settle_peer() REQUIRES(progress_lock);
  Result<Work> begin_on_way() REQUIRES(progress_lock);
  void help_on_device(Request& request) const;
  Status use(Way way) REQUIRES(progress_lock);
  Result<Work> plan();
  Status of_this_rank(const Status& why) const;
  Result<bool> start_next() REQUIRES(progress_lock);
  Result<bool> end() REQUIRES(progress_lock);
  void put_results() REQUIRES(progress_lock);
  void take(Work work);
  void order_on_devices();
  void note_work();
  bool must_await_results() const;
  void start(const Plan& plan);
  void forget_entry();
  bool may_have_begun(std::uint64_t log_index) const;
  std::string describe(const Participant::Execute& entry) const;
  bool is_checked(const Participant::Execute& entry) const;
  bool begin_check();
  bool share_news();
  void leave_out_absent();
  void finish() REQUIRES(progress_lock);

  Mesh& mesh_;
  InFlight& in_flight_;
  const Logger& logger_;
  WayExpected& expected_;
  const std::size_t chunk_bytes_;
  LaneTurns& turns_;
  Unended& unended_;
  std::optional<LaneArena> arena_;
  Backends backends_;
  Consistency consistency_;
  std::vector<std::uint64_t> sent_;      // the measurements of this rank's native backend
  std::vector<std::uint64_t> received_;  // [rank][number]: those of all ranks
  const bool is_arena_for_devices_;
  bool is_arena_settled_ = true;
  std::optional<Status> peer_of_lane_;      // whether entries can go by peer, or why not; none before it is settled
  bool goes_as_asked_ = false;              // then: by the way that the log says, and by no detour
  Place place_of_lane_;                     // of this rank's device, once that is settled
  Way way_ = Way::kHost;                    // of the front entry, if it has begun
  std::deque<Participant::Execute> queue_;  // front: being executed, if has_begun_
  bool has_begun_ = false;
  bool has_checked_ = false;
  bool is_beside_ = false;           // its own plans are done: the current plan compares results, or exchanges times
  std::string_view algorithm_ = {};  // of its largest plan so far, with that plan's bytes
  std::size_t n_by_algorithm_ = 0;
  bool is_ending_ = false;  // executed; its results are being put to devices
  bool is_in_chunks_ = false;
  StagedBlocks blocks_;      // of the front entry, if it goes in chunks
  Work work_;                // of the front entry
  std::size_t n_begun_ = 0;  // plans of work_ that have begun; the last of them is running_
  std::unique_ptr<RunningCollective> running_;
  std::vector<DeviceEventPtr> results_;  // of the front entry, which pass when they are there
  std::uint64_t n_executed_ = 0;
  struct AwaitedResult {
    std::uint64_t log_index;
    std::string what;
    std::shared_ptr<DeviceWork> work;
  };
  std::deque<AwaitedResult> awaited_results_;  // in the order of their work
  Status lost_;                                // not ok: why one of them never comes
};

}  // namespace ciranda
