#include "engine/lane.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/earliest.hpp"
#include "observe/ticks.hpp"

namespace ciranda {
namespace {

// The world's first lane has an arena from the start if it can have one, and for two ranks that send to each other an
// arena is of little use in host memory.
ArenaOptions arena_of(LaneId id, const Config& config) {
  if (id == 0) return {};
  return {.slot_bytes = static_cast<std::size_t>(config.slot_bytes), .is_for_devices = is_pair(set_of(id))};
}

// Null: the world is all that the other sets leave, and two ranks that send to each other are no set of the user's.
SetCounters* counters_of(LaneId id, Counters& counters) {
  const std::uint32_t set = set_of(id);
  return set == kWorldSet || is_pair(set) ? nullptr : counters.of_set(set);
}

// After this rank has joined, it still executes the entries of the others, with scratch memory.
void stand_in(Participant::Execute& entry, LaneId id, const LaneMesh& mesh, InFlight& in_flight) {
  for (Participant::Ready& ready : entry.requests) {
    if (ready.ticket != kNoTicket) continue;
    Request request;
    request.process_set = set_of(id);
    request.name = ready.absence->name;
    request.signature = ready.absence->signature;
    if (info(request.signature.collective).first_dim_may_differ) {
      for (TensorSignature& tensor : request.signature.tensors) tensor.shape.front() = 0;
    }
    settle_splits(request, mesh.size(), mesh.peer(mesh.rank()).rank);
    const OutputBuffer scratch = in_flight.output_memory().allocate(request.signature.n_bytes(), {});
    std::byte* at = scratch.data.get();
    for (const TensorSignature& tensor : request.signature.tensors) {
      request.memory.push_back({at, at});
      at += tensor.n_bytes();
    }
    ready.ticket = in_flight.add({std::make_unique<Request>(std::move(request)), std::make_shared<Operation>()});
    in_flight.at(ready.ticket).scratch = scratch.data;
  }
}

// Whether an asynchronous call can be treated as a blocking one: its thread waits already, and no other call is held
// back to be fused with it.
bool is_like_blocking(const Submission& submission, const InFlight& in_flight) {
  return submission.is_waited_for && !submission.request->is_awaited && submission.staged == nullptr &&
         !in_flight.has_deferrable();
}

// If the entry adds or removes sets or lanes, does so, and leaves it empty, since it moves no data.
void change_sets(Participant::Execute& entry, const ChangeSets& change, InFlight& in_flight) REQUIRES(progress_lock) {
  if (entry.requests.empty()) return;
  const Ticket ticket = entry.requests.front().ticket;
  const Subject subject = info(in_flight.at(ticket).request->signature.collective).subject;
  if (subject != Subject::kSets && subject != Subject::kLanes) return;
  std::int64_t result = 0;
  const Status status = change(*in_flight.at(ticket).request, result);
  in_flight.at(ticket).operation->set_value(result);
  in_flight.complete(ticket, status);
  entry.requests.clear();
}

}  // namespace

Lane::Lane(LaneId id, const std::vector<int>& ranks, SharedArena* arena, WorldParts& world, ChangeSets change_sets)
    : id_(id),
      has_failed_(world.has_failed),
      change_sets_(std::move(change_sets)),
      mesh_(world.mesh, world.mux, id, ranks, arena),
      in_flight_(world.output_memory, world.recorder, world.counters, counters_of(id, world.counters)),
      participant_(mesh_.rank(), id, world.names.ops,
                   {SharedArena::kArrivals, SharedArena::round_area_bytes(mesh_.size()),
                    SharedArena::has_buffers(mesh_.size())}),
      log_(id, mesh_, world.control, world.config, world.logger, {world.counters, world.recorder}),
      all_turns_(world.turns),
      turns_(world.turns, id),
      reports_(participant_.held(), participant_.calls(), log_, world.control),
      data_(mesh_, in_flight_, {mesh_, world.config, world.backends}, arena_of(id, world.config),
            {world.way_expected, turns_, world.unended, Staged::chunk_bytes(world.config)}, world.logger),
      parts_{id, mesh_, world.control, world.names, in_flight_, participant_, log_, reports_, data_, world.n_direct},
      in_memory_(parts_),
      by_messages_(parts_, world.config, stall_limits(world.config), world.logger),
      answers_(parts_, stall_limits(world.config), world.logger),
      stall_detector_(stall_limits(world.config), world.control, world.logger, world.counters),
      stalled_results_(stall_limits(world.config), world.control, world.logger, world.counters),
      log_end_(std::numeric_limits<std::uint64_t>::max()) {}

// --- reporting

// Returns none if the submission has failed because nothing new can be agreed on.
std::optional<Ticket> Lane::take_in(Submission&& submission, TimePoint now) {
  const Ticket ticket = in_flight_.add(std::move(submission));
  in_flight_.note(ticket, Stage::kTaken);
  if (parting_) {
    in_flight_.complete(ticket, *parting_);
    return std::nullopt;
  }
  if (!participant_.calls().any()) answers_.begin(now);
  return ticket;
}

void Lane::submit(Submission&& submission, TimePoint now) {
  reports_.expect_more();
  PersistentOp* const held = submission.op;
  const bool is_waited_for_late = is_like_blocking(submission, in_flight_);
  if (is_waited_for_late) {
    submission.request->is_awaited = true;
    submission.request->is_deferrable = false;
  }
  const bool is_duplicate = held == nullptr;
  const auto taken = take_in(std::move(submission), now);
  if (!taken) return;
  const Ticket ticket = *taken;
  if (is_duplicate) {
    in_memory_.withdraw();  // the first call of the name may be at a round
    in_memory_.close(participant_.close_rounds_in_memory());
  }
  PersistentOp& op = is_duplicate ? parts_.names.ops.find_or_make(id_, in_flight_.at(ticket).request->name) : *held;
  if (by_messages_.arrive(op, ticket, now) || in_memory_.arrive(op, ticket, now)) return;
  if (participant_.rounds().keep_duplicate(op, ticket)) return;
  const Request& request = *in_flight_.at(ticket).request;
  Message message = is_duplicate ? participant_.submit_duplicate(op, ticket) : participant_.submit(op, request, ticket);
  // The report of a known name may be lazy: the coordinator can use it only after its own rank has made the call. That
  // rank makes the call by itself, or is woken when this rank stops polling (ProgressLoop::stop_looking).
  const bool may_be_lazy =
      request.is_deferrable || (request.is_awaited && std::holds_alternative<ReadyMessage>(message));
  // If a thread waits late for an asynchronous call, the report is urgent: the other ranks' calls may be asynchronous
  // too, so no thread there waits, and a lazy message would wake none.
  if (!may_be_lazy || is_waited_for_late || is_duplicate) parts_.control.hurry();
  reports_.add(std::move(message), now);
  in_flight_.note(ticket, Stage::kReady);
}

RoundsInMemory::Outcome Lane::repeat(const Call& call, OpHandle* handle, Stages* stages, int n_looks) {
  if (parting_ || has_joined() || data_.arena() == nullptr) return std::nullopt;
  PersistentOp* const op =
      call.name.empty() ? &participant_.unnamed().op() : parts_.names.ops.find(id_, call.name, handle);
  if (op == nullptr) return std::nullopt;
  const bool had_pending = participant_.calls().any();
  RoundsInMemory::Outcome outcome = in_memory_.repeat(*op, call, stages, n_looks);
  if (handle != nullptr && handle->op.get() != op) handle->op = op->shared_from_this();
  if (!outcome || *outcome == nullptr || (*outcome)->is_done()) return outcome;
  reports_.expect_more();
  if (!had_pending) answers_.begin(std::chrono::steady_clock::now());
  return outcome;
}

void Lane::join(Submission&& submission, TimePoint now) {
  const auto ticket = take_in(std::move(submission), now);
  if (!ticket) return;
  parts_.control.hurry();
  in_memory_.withdraw();
  reports_.add(participant_.calls().join(*ticket), now);
}

// --- agreeing

Status Lane::on_message(int world_rank, Message message, TimePoint now) {
  const std::optional<int> from = mesh_.member_of(world_rank);
  if (from && std::holds_alternative<NoMoreInputsMessage>(message)) {
    by_messages_.on_end(*from);
    return Status::ok_status();
  }
  if (auto* input = std::get_if<InputMessage>(&message); input != nullptr && from) {
    return by_messages_.on_input(*from, std::move(*input), now);
  }
  if (!from || !log_.expects(*from, message)) {
    return Status::internal(parts_.control.peer_text(world_rank) + " sent what rank " +
                            std::to_string(mesh_.peer(mesh_.rank()).rank) + " has no use for in lane " +
                            std::to_string(id_));
  }
  const Result<LogMessage> log = log_.on_message(*from, std::move(message), now);
  return log.ok() ? apply(log.value(), now) : log.status();
}

Result<bool> Lane::agree(TimePoint now) {
  const bool has_polled = in_memory_.poll(now);
  if (Status status = by_messages_.carry_out(now); !status.ok()) return status;
  reports_.send_due(now);
  ask_for_turns(now);
  if (is_leaving_ && in_flight_.empty()) {
    is_leaving_ = false;
    parts_.control.hurry();
    log_.leave(now);
  }
  Result<bool> passed_on = log_.pass_on(now);
  if (!passed_on.ok()) return passed_on;
  const std::size_t n_bytes_under_way = log_.has_priorities() ? data_.n_bytes_under_way() : 0;
  const LogMessage log = log_.write(data_.is_idle(), n_bytes_under_way, now);
  if (Status status = apply(log, now); !status.ok()) return status;
  if (Status status = answers_.look(now); !status.ok()) return status;
  if (Status status = by_messages_.look_for_silence(now); !status.ok()) return status;
  return has_polled || passed_on.value() || !log.entries.empty();
}

Status Lane::apply(const LogMessage& log, TimePoint now) {
  if (!log.entries.empty()) log_arrived_ = ticks();
  for (const LogEntry& entry : log.entries) {
    if (std::holds_alternative<FailEntry>(entry)) in_memory_.withdraw();  // so that it closes the rounds of all names
    Result<Participant::Action> action = participant_.apply(entry);
    if (!action.ok()) return action.status();
    ++n_logged_;
    reports_.add_late(now);
    if (const auto* turn = std::get_if<TurnEntry>(&entry)) all_turns_.give(turn->lane, turn->log_index);
    if (data_.n_enqueued() >= log_end_) continue;
    if (Status status = apply(std::move(action).value(), now); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status Lane::apply(Participant::Action action, TimePoint now) {
  if (auto* to_execute = std::get_if<Participant::Execute>(&action)) {
    in_memory_.close(to_execute->to_close);
    stand_in(*to_execute, id_, mesh_, in_flight_);
    for (const Participant::Ready& ready : to_execute->requests) {
      by_messages_.forget(ready.ticket);
      in_flight_.note_agreed(ready.ticket, Path::kPlan, log_arrived_);
    }
    change_sets(*to_execute, change_sets_, in_flight_);
    take_turn(*to_execute);
    data_.enqueue(std::move(*to_execute));
    return Status::ok_status();
  }
  data_.enqueue({});  // takes the entry's position in the order
  if (std::holds_alternative<TurnEntry>(action)) return Status::ok_status();
  if (const auto* failed = std::get_if<Participant::Fail>(&action)) {
    if (set_of(id_) == kWorldSet) has_failed_.store(true);
    in_memory_.close(failed->to_close);
    for (const Ticket ticket : failed->tickets) {
      by_messages_.forget(ticket);
      in_flight_.complete(ticket, failed->status);
    }
  } else if (const auto* joined = std::get_if<Participant::Joined>(&action)) {
    // Automatic names restart, since ranks have made different numbers of calls. The log of the set's first lane tells
    // all ranks that all have joined.
    if (lane_of(id_) == 0) parts_.names.automatic.restart(set_of(id_));
    in_flight_.at(joined->ticket).operation->set_value(mesh_.peer(joined->last).rank);
    in_flight_.complete(joined->ticket, Status::ok_status());
  } else if (auto* planned = std::get_if<Participant::Planned>(&action)) {
    reports_.add(planned->released, now);
    reports_.send(planned->known, now);
  } else if (const auto* cancelled = std::get_if<Participant::Cancelled>(&action)) {
    parts_.control.hurry();
    if (cancelled->answer) reports_.send(*cancelled->answer, now);
  } else if (const auto* forgotten = std::get_if<Participant::Forgotten>(&action)) {
    in_memory_.close(forgotten->to_close);
    reports_.send(forgotten->answer, now);
  } else {
    has_ended_ = true;
    const int leaver = std::get<EndEntry>(action).leaver;
    if (leaver >= 0) leaver_ = leaver;
    end(leaver_ ? has_left(*leaver_) : Status::aborted("the process set was removed before this was done."));
    in_flight_.complete_all(*parting_, false);
  }
  return Status::ok_status();
}

// The world's first lane gives the turns, so its own entries need not ask for one.
void Lane::take_turn(const Participant::Execute& entry) {
  if (!goes_by_nccl(entry)) return;
  if (id_ == 0) {
    all_turns_.give(id_, data_.n_enqueued());
  } else if (log_.coordinator() != nullptr) {
    turns_.ask(data_.n_enqueued());
  }
}

// At the world's first lane, for all others of this rank.
void Lane::ask_for_turns(TimePoint now) {
  if (id_ != 0) return;
  for (const TurnMessage& asked : all_turns_.take_asked()) {
    parts_.control.hurry();
    log_.report(asked, now);
  }
}

std::optional<StandingMessage> Lane::standing() const {
  if (parting_ || has_ended_ || has_joined() || !data_.is_idle() || !in_memory_.empty()) return std::nullopt;
  return StandingMessage{n_logged_, static_cast<std::uint32_t>(in_flight_.size())};
}

// Sends the message after all reports that are held.
void Lane::report(const StandingMessage& standing, TimePoint now) {
  parts_.control.hurry();
  reports_.add(standing, now);
}

// --- executing

Result<bool> Lane::execute(TimePoint now) {
  if (Status status = look_at_results(now); !status.ok()) return status;
  if (data_.is_idle()) {
    stall_detector_.moved();
    return false;
  }
  answers_.note_busy();
  Result<bool> stepped = data_.step();
  if (!stepped.ok() || stepped.value()) {
    stall_detector_.moved();
    return stepped;
  }
  const Turns::State turn = data_.turn();
  if (turn == Turns::State::kGiven) {  // the lane that it waits for looks by itself
    stall_detector_.moved();
    return false;
  }
  const Status status = stall_detector_.stuck(now, [this, turn]() REQUIRES(progress_lock) {
    StallDetector::Stuck stuck{
        .what = data_.describe_current(), .awaited = data_.awaited(), .device = data_.awaited_device()};
    for (int& rank : stuck.awaited) rank = mesh_.peer(rank).rank;
    if (turn == Turns::State::kAwaited) stuck = {.what = stuck.what, .awaited = {0}, .device = ""};
    return stuck;
  });
  if (!status.ok()) return status;
  return false;
}

// A device that does not come to the end of a call is named, whoever waits for it. One that waits for those of other
// ranks leaves them the time to name themselves.
Status Lane::look_at_results(TimePoint now) {
  const Result<bool> moved = data_.look_at_results();
  if (!moved.ok()) return moved.status();
  if (moved.value() || !data_.awaits_results()) {
    stalled_results_.moved();
    return Status::ok_status();
  }
  return stalled_results_.stuck(now, [this]() REQUIRES(progress_lock) {
    DeviceWork& work = data_.work_of_result();
    return StallDetector::Stuck{
        .what = data_.awaited_result(), .awaited = {}, .device = work.where(), .has_come = work.has_come()};
  });
}

std::string_view Lane::agreement(Collective collective, std::size_t n_bytes) const {
  const Coordinator* coordinator = log_.coordinator();
  if (coordinator == nullptr) return "";
  const auto n_rows = static_cast<std::int64_t>(n_bytes);
  Signature signature;
  signature.collective = collective;
  signature.tensors.push_back({DataType::kUInt8, {n_rows}});
  const std::vector<std::int64_t> alike(mesh_.ranks().size(), n_rows);
  switch (coordinator->direct_for(signature, {alike})) {
    case Direct::kInMemory: return "a direct round in shared memory";
    case Direct::kByMessages: return "a direct round by messages";
    case Direct::kNot: break;
  }
  return "the log";
}

std::optional<TimePoint> Lane::next_deadline() const {
  std::optional<TimePoint> next = earliest(log_.due(), reports_.due());
  next = earliest(next, earliest(answers_.due(), by_messages_.due()));
  next = earliest(next, stalled_results_.due());
  return earliest(next, stall_detector_.due());
}

// --- ending: a member leaves, the world breaks, or the lane is taken down

void Lane::on_departure(const Departure& departure) {
  const std::optional<int> who = mesh_.member_of(departure.rank);
  if (!who || has_ended_) return;  // the whole log was for that rank, too
  if (id_ == 0 && *who == 0) last_turn_at_ = departure.log_index(id_);
  log_end_ = std::min(log_end_, departure.log_index(id_));
  if (first_leaver_ < 0) first_leaver_ = departure.first_leaver(id_);
  if (!parting_) {
    parting_ = Status::aborted(parts_.control.peer_text(first_leaver_) +
                               " has shut down, so nothing that needs all ranks can be done any more. Ranks must make "
                               "the same number of calls before they shut down.");
  }
  data_.give_up_from(log_end_, *parting_);
  in_memory_.withdraw();
  by_messages_.on_end(*who);
  by_messages_.send_no_more();
}

// Calls that are not agreed on by the end of the log never will be. A round by messages to which all members have sent
// their inputs counts as agreed on; the inputs may still be under way.
void Lane::fail_impossible() {
  if (last_turn_at_ && n_logged_ >= *last_turn_at_) all_turns_.close();
  if (!parting_ || n_logged_ < log_end_) return;
  in_flight_.complete_all(*parting_, false);
  by_messages_.fail_lost(*parting_);
}

void Lane::give_up(const Status& why) {
  log_end_ = 0;
  if (!parting_) parting_ = why;
  in_memory_.withdraw();
  data_.give_up_from(log_end_, why);
  by_messages_.clear();
  in_flight_.complete_all(why, true);
}

void Lane::end(const Status& why) {
  if (!parting_) parting_ = why;
  in_memory_.withdraw();
  log_.end(why);
}

void Lane::leave(const Status& why) {
  if (parting_) return;
  parting_ = why;
  is_leaving_ = true;
  in_memory_.withdraw();
}

}  // namespace ciranda
