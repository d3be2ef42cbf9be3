// DataPlane: executes the response log, entry after entry, a bounded step at a time.
//
// One thread (the holder of the progress lock).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agree/participant.hpp"
#include "backend/backend.hpp"
#include "execute/consistency.hpp"
#include "execute/in_flight.hpp"
#include "execute/lane_arena.hpp"
#include "execute/work.hpp"

namespace ciranda {

class DataPlane {
 public:
  // The references outlive this. If the mesh has no arena, but its ranks share memory, they make themselves one of
  // `slot_bytes` when there is data to move; not if that is 0, which it is on all ranks of the mesh or none.
  DataPlane(Mesh& mesh, InFlight& in_flight, std::unique_ptr<Backend> backend, std::size_t slot_bytes,
            const Logger& logger);

  // The next entry of the log; an empty one only takes its place in the order.
  void enqueue(Participant::Execute entry);

  // Carries out now, in whatever place of the order, what needs no other rank: `inputs` are those of all members, in
  // their order. Not ok: as step().
  Status combine(const Participant::Execute& entry, std::span<const std::span<const std::byte>> inputs);

  bool is_idle() const { return queue_.empty(); }

  // How the lane could carry out a collective of so many bytes, and what it chooses.
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const {
    return backend_->candidates(collective, n_bytes);
  }

  // Null if the lane's members do not all share memory, or it is not known yet.
  SharedArena* arena() { return arena_ ? arena_->arena() : mesh_.arena(); }

  // Not ok: this rank cannot go on (no memory for an output), so the world breaks. Returns whether anything moved.
  Result<bool> step();

  // What is to be executed next waits for inputs from a device of this rank, which wakes it.
  bool awaits_device() const { return !queue_.empty() && !has_begun_; }

  // How many entries of the log were given to enqueue().
  std::uint64_t n_enqueued() const { return n_executed_ + queue_.size(); }
  // How many entries of the log are done with.
  std::uint64_t n_executed() const { return n_executed_; }

  // Of what was given to enqueue() and is not done; at a cost for each request.
  std::size_t n_bytes_under_way() const;

  // Entries from log_index on will not be executed: `status` for their requests.
  void give_up_from(std::uint64_t log_index, const Status& status);

  // What is being executed, for a message: "allreduce 'a' and 3 more". REQUIRES: !is_idle().
  std::string describe_current() const { return describe(queue_.front()); }
  std::vector<int> awaited() const;

 private:
  Result<bool> has_inputs() const;
  Result<Work> begin();
  Result<bool> start_next();
  void take(Work work);
  std::string describe(const Participant::Execute& entry) const;
  bool begin_check();
  bool begin_telling();
  void leave_out_absent();
  void finish();

  Mesh& mesh_;
  InFlight& in_flight_;
  std::optional<LaneArena> arena_;
  const std::unique_ptr<Backend> backend_;
  Consistency consistency_;
  std::vector<std::uint64_t> told_;   // what the backend has measured
  std::vector<std::uint64_t> heard_;  // [rank][number]
  bool is_arena_settled_ = true;
  std::deque<Participant::Execute> queue_;  // front: being executed, if has_begun_
  bool has_begun_ = false;
  bool has_checked_ = false;
  Work work_;                // of the front
  std::size_t n_begun_ = 0;  // of its plans; the last of them is running_
  std::unique_ptr<RunningCollective> running_;
  std::uint64_t n_executed_ = 0;
};

}  // namespace ciranda
