#include "engine/lane.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/limits.hpp"
#include "base/earliest.hpp"
#include "engine/seconds.hpp"

namespace ciranda {
namespace {

// The world's first lane has an arena if it can have one; two ranks that send to each other would have one each for
// little.
std::size_t slot_bytes_of(LaneId id, const Config& config) {
  return id == 0 || is_pair(set_of(id)) ? 0 : static_cast<std::size_t>(config.slot_bytes);
}

LivenessProbe::Limits limits_of(const Config& config) {
  return {seconds(config.stall_warning_seconds), seconds(config.stall_shutdown_seconds)};
}

std::vector<LivenessProbe::Watched> ranks_above(const LaneLog& log, const LaneMesh& mesh) {
  std::vector<LivenessProbe::Watched> ranks;
  for (const int member : log.above()) {
    const bool coordinates = member == log.above().back();
    ranks.push_back({mesh.ranks()[static_cast<std::size_t>(member)],
                     coordinates ? "which coordinates" : "through which the log comes"});
  }
  return ranks;
}

// All others but these, where they are so few that they may send their inputs to each other.
std::vector<LivenessProbe::Watched> ranks_beside(const LaneLog& log, const LaneMesh& mesh, int most_ranks) {
  std::vector<LivenessProbe::Watched> ranks;
  if (mesh.size() > most_ranks) return ranks;
  const std::vector<int>& above = log.above();
  for (int member = 0; member < mesh.size(); ++member) {
    if (member == mesh.rank() || std::find(above.begin(), above.end(), member) != above.end()) continue;
    ranks.push_back({mesh.ranks()[static_cast<std::size_t>(member)], "which takes part in what is waited for"});
  }
  return ranks;
}

bool changes_sets(Collective collective) {
  const Subject subject = info(collective).subject;
  return subject == Subject::kSets || subject == Subject::kLanes;
}

}  // namespace

Lane::Lane(LaneId id, const std::vector<int>& ranks, SharedArena* arena, const Surroundings& around)
    : id_(id),
      control_(around.control),
      logger_(around.logger),
      n_met_(around.n_met),
      has_failed_(around.has_failed),
      changes_(around.changes),
      mux_(around.mux),
      mesh_(around.world, around.mux, id, ranks, arena),
      auto_names_(around.names.automatic),
      ops_(around.names.ops),
      in_flight_(around.names.ops, around.output_memory, around.recorder),
      limits_(agreement_limits(around.config, mesh_.size())),
      participant_(mesh_.rank(), id, ops_,
                   {SharedArena::kMeetings, SharedArena::meeting_area_bytes(mesh_.size()),
                    SharedArena::has_buffers(mesh_.size())}),
      in_memory_(mesh_, in_flight_, around.n_met),
      by_messages_(mesh_.rank(), mesh_.size()),
      log_(id, mesh_, control_, around.config, logger_),
      reports_(participant_, log_, control_),
      probe_(ranks_above(log_, mesh_), limits_of(around.config), control_, logger_),
      inputs_probe_(ranks_beside(log_, mesh_, limits_.swap_ranks), limits_of(around.config), control_, logger_),
      stall_detector_(limits_of(around.config), control_, logger_),
      sweeps_(limits_of(around.config).shutdown),
      repeated_(participant_, in_memory_, log_, in_flight_, around.names),
      data_(mesh_, in_flight_, find(around.backends, DeviceType::kHost)->make(mesh_, around.config),
            slot_bytes_of(id, around.config), logger_),
      goes_by_messages_(mesh_.size() <= limits_.swap_ranks && !shares_memory_with_all(mesh_) && !log_.has_relays()),
      contributes_inputs_(!shares_memory_with_all(mesh_) && !log_.has_relays() && around.config.algorithm.empty()),
      log_end_(std::numeric_limits<std::uint64_t>::max()) {}

int Lane::member(int world_rank) const {
  const std::vector<int>& ranks = mesh_.ranks();
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), world_rank);
  return found != ranks.end() && *found == world_rank ? static_cast<int>(found - ranks.begin()) : -1;
}

bool Lane::includes(int world_rank) const { return member(world_rank) >= 0; }

// --- reporting

void Lane::submit(Submission&& submission, TimePoint now) {
  reports_.expect_more();
  PersistentOp* const held = submission.op;
  const bool is_duplicate = held == nullptr;
  const Participant::Ticket ticket = in_flight_.add(std::move(submission));
  in_flight_.note(ticket, Stage::kTaken);
  if (parting_) {
    in_flight_.complete(ticket, *parting_);
    return;
  }
  if (!participant_.has_pending()) begin_to_wait(now);
  if (is_duplicate) leave_rounds();  // its first call may be at one
  PersistentOp& op = is_duplicate ? ops_.find_or_make(id_, in_flight_.at(ticket).request.name) : *held;
  if (come(op, ticket, now)) return;
  if (participant_.come_late(op, ticket)) return;
  const Request& request = in_flight_.at(ticket).request;
  Message message = is_duplicate ? participant_.submit_duplicate(op, ticket) : participant_.submit(op, request, ticket);
  auto* ready = std::get_if<ReadyMessage>(&message);
  // With a known name the coordinator can do nothing before it has called too, which it does by itself, or is woken for
  // when this rank will look no longer (ProgressLoop::insist).
  const bool may_be_lazy = request.is_deferrable || (request.is_awaited && ready != nullptr);
  if (!may_be_lazy || is_duplicate) control_.hurry();
  if (ready != nullptr && ready->items.size() == 1 && contributes_inputs_) {
    const auto input = small_input(request);
    ready->items.front().input.assign(input.begin(), input.end());
  }
  reports_.add(std::move(message), now);
  in_flight_.note(ticket, Stage::kReady);
}

// Or closes the round to which others might come, as this rank's call is of another kind.
bool Lane::come(PersistentOp& op, Participant::Ticket ticket, TimePoint now) {
  const InFlight::Entry& entry = in_flight_.at(ticket);
  const bool is_duplicate = entry.op == nullptr;
  SharedArena* arena = data_.arena();
  const auto round = is_duplicate || !entry.request.is_awaited ? std::nullopt : round_for(ticket, arena);
  if (!round) {
    close_avoided(op, entry.request);
    return false;
  }
  if (arena == nullptr) {
    send_input(*round, ticket, now);
  } else if (in_memory_.come(*arena, *round, ticket)) {
    meet(now);
  } else {
    report_missed(*round->op, now);
  }
  return true;
}

std::optional<Participant::DirectRound> Lane::round_for(Participant::Ticket ticket, const SharedArena* arena) {
  const Request& request = in_flight_.at(ticket).request;
  PersistentOp& op = *in_flight_.at(ticket).op;
  if (arena == nullptr)
    return goes_by_messages_ ? participant_.come(Direct::kByMessages, op, request, ticket) : std::nullopt;
  if (RoundsInMemory::is_better_in_place(*arena, request)) return std::nullopt;
  if (!is_numbered(request)) return participant_.come(Direct::kInMemory, op, request, ticket);
  if (id_ != 0 || !is_unnamed(request.name)) return std::nullopt;
  return participant_.come_unnamed(request, auto_names_.n_unnamed() - 1, ticket);
}

// One without a name is not the next that may come, where another of this rank is at a round.
void Lane::close_avoided(PersistentOp& op, const Request& request) {
  if (is_numbered(request) && participant_.has_come_unnamed()) leave_rounds();
  const auto avoided = participant_.avoid(is_numbered(request) ? participant_.unnamed() : op);
  if (avoided) in_memory_.close(data_.arena(), *avoided);
}

// What all ranks agree on in full is reported so.
void Lane::report_missed(PersistentOp& op, TimePoint now) {
  if (!op.is_unnamed()) return reports_.add(participant_.missed(op), now);
  control_.hurry();
  const Participant::Ticket ticket = participant_.missed_unnamed();
  const InFlight::Entry& entry = in_flight_.at(ticket);
  reports_.add(participant_.submit(*entry.op, entry.request, ticket), now);
}

RepeatedCalls::Outcome Lane::repeat(const Call& call, Stages* stages, int n_looks) {
  SharedArena* arena = data_.arena();
  if (arena == nullptr || parting_) return std::nullopt;
  const bool had_pending = participant_.has_pending();
  RepeatedCalls::Outcome outcome = repeated_.repeat(*arena, call, stages, n_looks);
  if (!outcome || *outcome == nullptr || (*outcome)->is_done()) return outcome;
  reports_.expect_more();
  if (!had_pending) begin_to_wait(std::chrono::steady_clock::now());
  return outcome;
}

bool Lane::meet(TimePoint now) { return !in_memory_.empty() && look_at_rounds(false, now); }

void Lane::leave_rounds() {
  if (!in_memory_.empty()) look_at_rounds(true, std::chrono::steady_clock::now());
}

bool Lane::look_at_rounds(bool closes, TimePoint now) {
  const RoundsInMemory::News news = in_memory_.look(closes);
  for (PersistentOp* const op : news.met) {
    log_.met(*op);
    const Participant::Ticket ticket = participant_.done(*op).ticket;
    in_flight_.complete(ticket, Status(in_flight_.at(ticket).outcome));
  }
  for (PersistentOp* const op : news.missed) report_missed(*op, now);
  if (!news.missed.empty()) reports_.say_if_waiting(now);
  return !news.met.empty() || !news.missed.empty();
}

void Lane::join(Submission&& submission, TimePoint now) {
  const Participant::Ticket ticket = in_flight_.add(std::move(submission));
  in_flight_.note(ticket, Stage::kTaken);
  if (parting_) {
    in_flight_.complete(ticket, *parting_);
    return;
  }
  if (!participant_.has_pending()) begin_to_wait(now);
  control_.hurry();
  leave_rounds();
  reports_.add(participant_.join(ticket), now);
}

// --- agreeing

Status Lane::on_message(int world_rank, Message message, TimePoint now) {
  const int from = member(world_rank);
  if (from >= 0 && std::holds_alternative<NoMoreInputsMessage>(message)) {
    by_messages_.hear_end(from);
    return Status::ok_status();
  }
  if (const auto* input = std::get_if<InputMessage>(&message); input != nullptr && from >= 0) {
    return hear_input(from, *input, now);
  }
  if (from < 0 || !log_.expects(from, message)) {
    return Status::internal(control_.peer_text(world_rank) + " sent what rank " +
                            std::to_string(mesh_.ranks()[static_cast<std::size_t>(mesh_.rank())]) +
                            " has no use for in lane " + std::to_string(id_));
  }
  const Result<LogMessage> log = log_.hear(from, std::move(message), now);
  return log.ok() ? apply(log.value(), now) : log.status();
}

Result<bool> Lane::agree(TimePoint now) {
  const bool has_met = meet(now);
  if (Status status = carry_out_by_messages(now); !status.ok()) return status;
  reports_.send_due(now);
  Result<bool> passed_on = log_.pass_on(now);
  if (!passed_on.ok()) return passed_on;
  const std::size_t n_bytes_under_way = log_.has_priorities() ? data_.n_bytes_under_way() : 0;
  const LogMessage log = log_.write(data_.is_idle(), n_bytes_under_way, now);
  if (Status status = apply(log, now); !status.ok()) return status;
  if (participant_.has_pending()) {
    if (Status status = probe_.look(now); !status.ok()) return status;
    if (sweeps_.is_due(now)) {
      if (Status status = sweep(now); !status.ok()) return status;
    }
  }
  if (!by_messages_.empty()) {
    if (Status status = inputs_probe_.look(now); !status.ok()) return status;
  }
  return has_met || passed_on.value() || !log.entries.empty();
}

Status Lane::sweep(TimePoint now) {
  if (const auto again = participant_.join_again()) reports_.say(*again, now);
  const auto overdue = participant_.sweep(reports_.is_waiting());
  if (!overdue) return Status::ok_status();
  const std::string formed = needs_no_agreement(id_) ? ", or that rank has not formed the group" : "";
  return Status::timeout("'" + *overdue + "' has waited on rank " +
                         std::to_string(mesh_.ranks()[static_cast<std::size_t>(mesh_.rank())]) + " for more than " +
                         seconds_text(2 * sweeps_.interval()) + " without an answer of " +
                         control_.peer_text(mesh_.ranks().front()) +
                         ", which coordinates and is there: a message between them was lost" + formed + ".");
}

Status Lane::apply(const LogMessage& log, TimePoint now) {
  log_came_ = in_flight_.recorder().now();
  for (const LogEntry& entry : log.entries) {
    Result<Participant::Action> action = participant_.apply(entry);
    if (!action.ok()) return action.status();
    ++n_logged_;
    report_late(now);
    if (data_.n_enqueued() >= log_end_) continue;
    if (Status status = apply(std::move(action).value(), now); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status Lane::apply(Participant::Action action, TimePoint now) {
  if (auto* to_execute = std::get_if<Participant::Execute>(&action)) {
    for (const Participant::DirectRound& round : to_execute->to_close) in_memory_.close(data_.arena(), round);
    stand_in(*to_execute);
    for (const Participant::Ready& ready : to_execute->requests) {
      forget_input(ready.ticket);
      in_flight_.note_agreed(ready.ticket, to_execute->inputs.empty() ? Path::kPlan : Path::kAlong, log_came_);
    }
    if (change_sets(*to_execute)) to_execute->requests.clear();
    data_.enqueue(std::move(*to_execute));
    return Status::ok_status();
  }
  data_.enqueue({});  // its place in the order
  if (const auto* failed = std::get_if<Participant::Fail>(&action)) {
    if (set_of(id_) == kWorldSet) has_failed_.store(true);
    for (const Participant::Ticket ticket : failed->tickets) {
      forget_input(ticket);
      in_flight_.complete(ticket, failed->status);
    }
  } else if (const auto* joined = std::get_if<Participant::Joined>(&action)) {
    // The ranks have made different numbers of calls. They know that all have joined by the set's first lane.
    if (lane_of(id_) == 0) auto_names_.restart(set_of(id_));
    in_flight_.at(joined->ticket).operation->set_value(mesh_.ranks()[static_cast<std::size_t>(joined->last)]);
    in_flight_.complete(joined->ticket, Status::ok_status());
  } else if (auto* planned = std::get_if<Participant::Planned>(&action)) {
    reports_.add(planned->released, now);
    reports_.say(planned->known, now);
  } else if (const auto* cancelled = std::get_if<Participant::Cancelled>(&action)) {
    control_.hurry();
    if (cancelled->answer) reports_.say(*cancelled->answer, now);
  } else if (const auto* forgotten = std::get_if<Participant::Forgotten>(&action)) {
    for (const Participant::DirectRound& round : forgotten->to_close) in_memory_.close(data_.arena(), round);
    reports_.say(forgotten->answer, now);
  } else {
    has_ended_ = true;
    end(Status::aborted("the process set was removed before this was done."));
    in_flight_.complete_all(*parting_, false);
  }
  return Status::ok_status();
}

// Where this rank has joined it still helps the others, with memory that nobody looks at.
void Lane::stand_in(Participant::Execute& entry) {
  for (Participant::Ready& ready : entry.requests) {
    if (ready.ticket != Participant::kNoTicket) continue;
    Request request;
    request.process_set = set_of(id_);
    request.name = ready.absence->name;
    request.signature = ready.absence->signature;
    if (info(request.signature.collective).first_dim_may_differ) {
      for (TensorSignature& tensor : request.signature.tensors) tensor.shape.front() = 0;
    }
    settle_splits(request, mesh_.size(), mesh_.ranks()[static_cast<std::size_t>(mesh_.rank())]);
    const OutputBuffer scratch = in_flight_.output_memory().allocate(request.signature.n_bytes(), {});
    std::byte* at = scratch.data.get();
    for (const TensorSignature& tensor : request.signature.tensors) {
      request.memory.push_back({at, at});
      at += tensor.n_bytes();
    }
    ready.ticket = in_flight_.add({std::move(request), std::make_shared<Operation>()});
    in_flight_.at(ready.ticket).scratch = scratch.data;
  }
}

bool Lane::change_sets(Participant::Execute& entry) {
  if (entry.requests.empty()) return false;
  const Participant::Ticket ticket = entry.requests.front().ticket;
  if (!changes_sets(in_flight_.at(ticket).request.signature.collective)) return false;
  std::int64_t result = 0;
  const Status status = changes_.change_sets(in_flight_.at(ticket).request, result);
  in_flight_.at(ticket).operation->set_value(result);
  in_flight_.complete(ticket, status);
  return true;
}

// --- executing

Result<bool> Lane::execute(TimePoint now) {
  if (data_.is_idle()) {
    stall_detector_.moved();
    return false;
  }
  sweeps_.note_busy();
  Result<bool> stepped = data_.step();
  if (!stepped.ok() || stepped.value() || data_.awaits_device()) {
    stall_detector_.moved();
    return stepped;
  }
  const auto awaited = [this] {
    std::vector<int> ranks = data_.awaited();
    for (int& rank : ranks) rank = mesh_.ranks()[static_cast<std::size_t>(rank)];
    return ranks;
  };
  const Status status = stall_detector_.stuck(
      now, [this] { return data_.describe_current(); }, awaited);
  if (!status.ok()) return status;
  return false;
}

std::optional<TimePoint> Lane::next_deadline() const {
  std::optional<TimePoint> next = earliest(log_.due(), reports_.due());
  if (participant_.has_pending()) next = earliest(next, earliest(probe_.due(), sweeps_.due()));
  if (!by_messages_.empty()) next = earliest(next, inputs_probe_.due());
  return earliest(next, stall_detector_.due());
}

}  // namespace ciranda
