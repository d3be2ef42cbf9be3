// Lane: some ranks, their agreement on what to do, and the doing: one ordered log. The world is a lane; so is each
// process set, and each further lane of either. Lanes know nothing of each other and move at the same time.
//
// One thread (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "agree/participant.hpp"
#include "agree/process_sets.hpp"
#include "engine/answer_watch.hpp"
#include "engine/control_plane.hpp"
#include "engine/lane_log.hpp"
#include "engine/lane_parts.hpp"
#include "engine/reports.hpp"
#include "engine/rounds_by_messages.hpp"
#include "engine/rounds_in_memory.hpp"
#include "engine/stall_detector.hpp"
#include "engine/world_parts.hpp"
#include "execute/data_plane.hpp"
#include "execute/in_flight.hpp"
#include "execute/submission.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

// Carries out an entry that changes who the lanes are, at its place in the log. The status, and the number that comes
// with it, are the request's result.
using ChangeSets = std::function<Status(const Request& request, std::int64_t& result)>;

class Lane {
 public:
  // `ranks`: ascending, this one among them. `arena`: shared by exactly these ranks, or null. The references outlive
  // it.
  Lane(LaneId id, const std::vector<int>& ranks, SharedArena* arena, WorldParts& world, ChangeSets change_sets);

  LaneId id() const { return id_; }
  // All there was to do is done, and nothing more will come.
  bool is_over() const { return has_ended_ && data_.is_idle(); }
  // Of the world's ranks, who has left its set, and so ended it; none of a set that was removed. REQUIRES: is_over().
  std::optional<int> leaver() const { return leaver_; }
  bool has_pending() const { return !in_flight_.empty(); }
  // And not all have, as far as this rank knows.
  bool has_joined() const { return participant_.calls().has_joined(); }
  RoundsInMemory& rounds() { return in_memory_; }
  const DataPlane& data() const { return data_; }

  void submit(Submission&& submission, TimePoint now);
  RoundsInMemory::Outcome repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks);
  // The submission's request is empty where the lane joins along with another. REQUIRES: no join is pending here.
  void join(Submission&& submission, TimePoint now);
  Status on_message(int world_rank, Message message, TimePoint now);

  // Agrees, and executes a step. Each returns whether anything moved; not ok: the world is broken.
  Result<bool> agree(TimePoint now);
  Result<bool> execute(TimePoint now);

  // See RoundsByMessages.
  bool awaits_inputs() const { return !by_messages_.empty(); }

  // Somebody here waits and nothing may be held back. Returns whether that was news.
  bool expect_no_more() { return in_flight_.has_deferrable() && reports_.say_waiting(); }
  // Whether lazy news may be what this lane waits for: data for what it executes, or a report.
  bool awaits_lazy_news() const { return !data_.is_idle() || log_.awaits_reports(in_flight_.has_undeferrable()); }

  // What this rank could say while all of its threads wait, and only answers of this lane wake them. None: it has
  // joined here, something is not reported yet, or is being carried out.
  std::optional<StandingMessage> standing() const;
  void say(const StandingMessage& standing, TimePoint now);

  // A rank has left. What a member took part in is still carried out, nothing else can be.
  void heed(const Departure& departure);
  void fail_what_cannot_come();
  // Fails everything, now.
  void give_up(const Status& why);
  // The lane is taken down: what is agreed is carried out, everything else fails with `why`.
  void end(const Status& why);
  // This rank leaves the lane's set: what it has called is still carried out if the others call it, then the lane ends,
  // for all members. Nothing new is taken in, by reason of `why`. REQUIRES: the set is formed.
  void leave(const Status& why);

  // See Engine.
  std::string_view agreement(Collective collective, std::size_t n_bytes) const;

  std::optional<TimePoint> next_deadline() const;

 private:
  std::optional<Ticket> take_in(Submission&& submission, TimePoint now);
  Status apply(const LogMessage& log, TimePoint now);
  Status apply(Participant::Action action, TimePoint now);

  LaneId id_;
  std::atomic<bool>& has_failed_;
  const ChangeSets change_sets_;
  LaneMux& mux_;
  LaneMesh mesh_;
  InFlight in_flight_;
  Participant participant_;
  LaneLog log_;
  Reports reports_;
  DataPlane data_;
  const LaneParts parts_;
  RoundsInMemory in_memory_;
  RoundsByMessages by_messages_;
  AnswerWatch answers_;
  StallDetector stall_detector_;
  std::uint64_t n_logged_ = 0;
  std::uint64_t log_came_ = 0;     // when this part of the log did, in ticks; 0 where that is not recorded
  std::uint64_t log_end_;          // entries from here on are not carried out
  std::optional<Status> parting_;  // why nothing new can be agreed on
  bool is_leaving_ = false;        // and has yet to say so
  bool has_ended_ = false;
  std::optional<int> leaver_;
};

}  // namespace ciranda
