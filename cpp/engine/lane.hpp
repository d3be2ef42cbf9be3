// Lane: some ranks, their agreement on what to do, and the doing: one ordered log. The world is a lane; so is each
// process set, and each further lane of either. Lanes know nothing of each other and move at the same time.
//
// One thread (the holder of the progress lock).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/registry.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "engine/control_plane.hpp"
#include "engine/data_plane.hpp"
#include "engine/in_flight.hpp"
#include "engine/lane_log.hpp"
#include "engine/liveness_probe.hpp"
#include "engine/names.hpp"
#include "engine/process_sets.hpp"
#include "engine/repeated_calls.hpp"
#include "engine/reports.hpp"
#include "engine/rounds_in_memory.hpp"
#include "engine/stall_detector.hpp"
#include "engine/submission.hpp"
#include "engine/sweeps.hpp"
#include "negotiate/participant.hpp"
#include "negotiate/rounds_by_messages.hpp"
#include "transport/lane_mesh.hpp"

namespace ciranda {

// Carries out entries that change who the lanes are.
class LaneChanges {
 public:
  virtual ~LaneChanges() = default;
  // At its place in the log. The status, and the number that comes with it, are the request's result.
  virtual Status change_sets(const Request& request, std::int64_t& result) = 0;
};

class Lane {
 public:
  // All that a lane is made in; everything outlives it.
  struct Surroundings {
    Mesh& world;
    LaneMux& mux;
    ControlPlane& control;
    const Config& config;
    const Logger& logger;
    const Names& names;
    LaneChanges& changes;
    std::atomic<std::uint64_t>& n_met;
    std::atomic<bool>& has_failed;  // a collective of the world has
    const OutputMemory& output_memory;
    Recorder& recorder;
    std::span<const BackendRow> backends;
  };

  // `ranks`: ascending, this one among them. `arena`: shared by exactly these ranks, or null.
  Lane(LaneId id, const std::vector<int>& ranks, SharedArena* arena, const Surroundings& around);

  LaneId id() const { return id_; }
  bool includes(int world_rank) const;
  // All there was to do is done, and nothing more will come.
  bool is_over() const { return has_ended_ && data_.is_idle(); }
  bool has_pending() const { return !in_flight_.empty(); }
  // And not all have, as far as this rank knows.
  bool has_joined() const { return participant_.has_joined(); }
  bool moves_data() const { return !data_.is_idle(); }

  void submit(Submission&& submission, TimePoint now);
  // REQUIRES: this is the world's first lane.
  RepeatedCalls::Outcome repeat(const Call& call, Stages* stages, int n_looks);
  // The submission has no request where the lane joins along with another. REQUIRES: no join is pending here.
  void join(Submission&& submission, TimePoint now);
  Status on_message(int world_rank, Message message, TimePoint now);

  // Agrees, and executes a step. Each returns whether anything moved; not ok: the world is broken.
  Result<bool> agree(TimePoint now);
  Result<bool> execute(TimePoint now);

  // This rank has sent others what it contributes, and waits for what they contribute.
  bool awaits_inputs() const { return !by_messages_.empty(); }
  bool is_at_round() const { return !in_memory_.empty(); }
  bool is_at_round(const Operation& operation) const { return in_memory_.holds(operation); }
  // Carries out the calls for which all have met. Returns whether there were any.
  bool meet(TimePoint now);
  // Nobody here looks at rounds in memory any longer: what is not met by now is reported.
  void leave_rounds();

  // Somebody here waits and nothing may be held back. Returns whether that was news.
  bool expect_no_more() { return in_flight_.has_deferrable() && reports_.say_waiting(); }
  // Whether lazy news may be what this lane waits for: data for what it executes, or a report.
  bool awaits_lazy_news() const { return !data_.is_idle() || log_.awaits_reports(in_flight_.has_undeferrable()); }

  // A member has left: what it took part in is still carried out, nothing else can be.
  void heed(const Departure& departure);
  void fail_what_cannot_come();
  // Fails everything, now.
  void give_up(const Status& why);
  // The lane is taken down: what is agreed is carried out, everything else fails with `why`.
  void end(const Status& why);

  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const {
    return data_.candidates(collective, n_bytes);
  }

  // See Engine.
  std::string_view agreement(Collective collective, std::size_t n_bytes) const;

  std::uint64_t n_executed() const { return data_.n_executed(); }
  std::optional<TimePoint> next_deadline() const;

 private:
  int member(int world_rank) const;
  bool come(PersistentOp& op, Participant::Ticket ticket, TimePoint now);
  std::optional<Participant::DirectRound> round_for(Participant::Ticket ticket, const SharedArena* arena);
  void close_avoided(PersistentOp& op, const Request& request);
  void report_missed(PersistentOp& op, TimePoint now);
  bool look_at_rounds(bool closes, TimePoint now);
  // What may travel along with the report; nothing otherwise.
  std::span<const std::byte> small_input(const Request& request) const;
  void send_input(const Participant::DirectRound& round, Participant::Ticket ticket, TimePoint now);
  Status hear_input(int from, const InputMessage& message, TimePoint now);
  Status carry_out_by_messages(TimePoint now);
  void report_late(TimePoint now);
  void say_no_more_inputs();
  void forget_input(Participant::Ticket ticket) {
    if (!by_messages_.empty()) by_messages_.forget(ticket);
  }
  Status apply(const LogMessage& log, TimePoint now);
  Status apply(Participant::Action action, TimePoint now);
  Status sweep(TimePoint now);
  void begin_to_wait(TimePoint now) {
    probe_.begin(now);
    sweeps_.begin(now);
  }
  void stand_in(Participant::Execute& entry);
  bool change_sets(Participant::Execute& entry);
  void give_up_data(const Status& why);

  LaneId id_;
  ControlPlane& control_;
  const Logger& logger_;
  std::atomic<std::uint64_t>& n_met_;
  std::atomic<bool>& has_failed_;
  LaneChanges& changes_;
  LaneMux& mux_;
  LaneMesh mesh_;
  AutoNames& auto_names_;
  PersistentOps& ops_;
  InFlight in_flight_;
  AgreementLimits limits_;
  Participant participant_;
  RoundsInMemory in_memory_;
  RoundsByMessages by_messages_;
  LaneLog log_;
  Reports reports_;
  LivenessProbe probe_;         // while anything is pending
  LivenessProbe inputs_probe_;  // while a round by messages is
  StallDetector stall_detector_;
  Sweeps sweeps_;  // while anything is pending
  RepeatedCalls repeated_;
  DataPlane data_;
  bool goes_by_messages_;    // the coordinator decides who does; whatever this rank's own settings say
  bool contributes_inputs_;  // small ones, along with the report
  std::uint64_t n_logged_ = 0;
  std::uint64_t log_came_ = 0;     // when this part of the log did, in ticks; 0 where that is not recorded
  std::uint64_t log_end_;          // entries from here on are not carried out
  std::optional<Status> parting_;  // why nothing new can be agreed on
  bool has_ended_ = false;
  bool has_said_no_more_inputs_ = false;
};

}  // namespace ciranda
