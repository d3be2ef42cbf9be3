#include "engine/rounds_in_memory.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/relax.hpp"
#include "execute/outputs.hpp"
#include "execute/work.hpp"
#include "observe/ticks.hpp"

namespace ciranda {
namespace {

Arrivals at(const SharedArena& arena, const DirectRound& round) {
  return {arena.arrivals(round.room.number), arena.n_members()};
}

// Whether the call should avoid a direct round: nearly all of its bytes are in shared memory and can be combined there,
// so they need not be copied as a contribution.
bool is_better_in_place(const SharedArena& arena, const Call& call) {
  if (!info(call.collective).reduces_for_all) return false;
  const CallTensor& tensor = call.tensors.front();
  const std::size_t n_bytes = tensor.n_bytes();
  return n_bytes > kMostRoundBytes && arena.regions().find(tensor.memory.output, n_bytes);
}

bool is_better_in_place(const SharedArena& arena, const Request& request) {
  const Signature& signature = request.signature;
  if (!info(signature.collective).reduces_for_all || signature.n_bytes() <= kMostRoundBytes) return false;
  std::size_t n_elsewhere = 0;
  for (std::size_t i = 0; i < request.memory.size() && n_elsewhere <= SharedArena::kStageBytes; ++i) {
    const std::size_t n_bytes = signature.tensors[i].n_bytes();
    if (!arena.regions().find(request.memory[i].output, n_bytes)) n_elsewhere += n_bytes;
  }
  return n_elsewhere <= SharedArena::kStageBytes && n_elsewhere < signature.n_bytes();
}

bool completes_within(int n_looks, const Arrivals& arrivals, std::uint64_t round) {
  for (int i = 0; !arrivals.is_complete(round); ++i) {
    if (i == n_looks || arrivals.is_closed(round)) return false;
    relax();
  }
  return true;
}

// Whether the caller's memory for the result has room for the contributions of all members. True if the caller gave
// none.
bool fits_given(const CallTensor& tensor, const DirectRound& round) {
  if (round.first_dims == nullptr || tensor.memory.output == nullptr) return true;
  return std::ranges::all_of(round.first_dims->front(), [&](auto n_rows) { return n_rows == tensor.shape.front(); });
}

// Allocates the result of a call for which the caller has given no memory.
OutputBuffer allocate(const OutputMemory& from, const Call& call, const FirstDims* rows_of, const SharedArena& arena) {
  const CallTensor& tensor = call.tensors.front();
  Shape shape(tensor.shape.begin(), tensor.shape.end());
  std::int64_t& n_rows = shape.front();
  n_rows = rows_of != nullptr ? *sum_of_rows(rows_of->front())
                              : n_rows_of_result(call.collective, n_rows, arena.member(), arena.n_members());
  const std::size_t n_bytes = static_cast<std::size_t>(n_rows) * tensor.row_bytes();
  return from.allocate(n_bytes, std::move(shape));
}

std::shared_ptr<Operation> done_with(OutputBuffer output) {
  auto operation = std::make_shared<Operation>();
  std::vector<OutputBuffer> outputs;
  outputs.push_back(std::move(output));
  operation->set_outputs(std::move(outputs));
  operation->complete(Status::ok_status());
  return operation;
}

}  // namespace

// --- requests

bool RoundsInMemory::arrive(PersistentOp& op, Ticket ticket, TimePoint now) {
  Submission& entry = lane_.in_flight.at(ticket);
  SharedArena* const arena = lane_.data.arena();
  const bool is_duplicate = entry.op == nullptr;
  const bool may_arrive = arena != nullptr && !is_duplicate && entry.request->is_awaited;
  const auto round = may_arrive ? round_for(*arena, op, ticket) : std::nullopt;
  if (!round) {
    avoid(op, *entry.request);
    return false;
  }
  const std::vector<DirectTensor> tensors = direct_tensors(*entry.request, round->first_dims, arena->n_members());
  Stages* const stages = lane_.in_flight.recorder().is_on() ? &entry.stages : nullptr;
  if (enter(*arena, *round, call_of(entry, tensors), stages)) {
    pending_.push_back(*round);
    poll(now);
  } else {
    report_missed(*round->op, now);
  }
  return true;
}

std::optional<DirectRound> RoundsInMemory::round_for(const SharedArena& arena, PersistentOp& op, Ticket ticket) const {
  const Request& request = *lane_.in_flight.at(ticket).request;
  if (is_better_in_place(arena, request)) return std::nullopt;
  if (!is_numbered(request)) return lane_.participant.rounds().arrive(Direct::kInMemory, op, request, ticket);
  if (!is_unnamed(request.name)) return std::nullopt;
  return lane_.participant.unnamed().arrive(request, ticket);
}

// At most one call without a name is at a round, and then none is in the log. So an earlier such call is withdrawn from
// its round before this one is reported.
void RoundsInMemory::avoid(PersistentOp& op, const Request& request) {
  if (is_numbered(request) && lane_.participant.unnamed().has_arrived()) withdraw();
  const auto avoided = DirectRounds::avoid(is_numbered(request) ? lane_.participant.unnamed().op() : op);
  if (avoided) close(*avoided);
}

// A call without a name is reported with its full signature, by which the log agrees on it.
void RoundsInMemory::report_missed(PersistentOp& op, TimePoint now) {
  if (!op.is_unnamed()) return lane_.reports.add(DirectRounds::missed(op), now);
  lane_.control.hurry();
  const Ticket ticket = lane_.participant.unnamed().missed();
  const Submission& entry = lane_.in_flight.at(ticket);
  lane_.reports.add(lane_.participant.submit(*entry.op, *entry.request, ticket), now);
}

bool RoundsInMemory::holds(const Operation& operation) const {
  return std::ranges::any_of(pending_, [&](const DirectRound& pending) {
    return lane_.in_flight.at(pending.ticket).operation.get() == &operation;
  });
}

// `closes`: closes the incomplete rounds, so that none stays pending.
bool RoundsInMemory::look(bool closes, TimePoint now) {
  SharedArena& arena = *lane_.data.arena();
  std::vector<PersistentOp*> complete;
  std::vector<PersistentOp*> missed;
  std::erase_if(pending_, [&](const DirectRound& pending) REQUIRES(progress_lock) {
    Arrivals arrivals = at(arena, pending);
    const std::uint64_t number = pending.number;
    const bool is_complete = arrivals.is_complete(number) || (closes && !close_for_all(arrivals, number, 1));
    if (is_complete) memory_.keep_line(arena, pending);
    if (is_complete && memory_.agree(arena, pending)) {
      complete.push_back(pending.op);
      Submission& entry = lane_.in_flight.at(pending.ticket);
      const Path path = entry.stages.path == Path::kRepeated ? Path::kRepeated : Path::kInMemory;
      note_agreed(pending.ticket, path);
      entry.outcome = carry_out(arena, pending);
      return true;
    }
    if (!is_complete && !closes && !arrivals.is_closed(number)) return false;
    memory_.give_back(arena, pending);
    missed.push_back(pending.op);
    return true;
  });
  for (PersistentOp* const op : complete) {
    lane_.log.note_direct_round(*op);
    const Ticket ticket = lane_.participant.rounds().done(*op);
    lane_.in_flight.complete(ticket, Status(lane_.in_flight.at(ticket).outcome));
  }
  for (PersistentOp* const op : missed) report_missed(*op, now);
  if (!missed.empty()) lane_.reports.repeat_waiting(now);
  return !complete.empty() || !missed.empty();
}

// Which of more than two members came last is not known.
void RoundsInMemory::note_agreed(Ticket ticket, Path path) {
  const std::uint64_t now = ticks();
  if (lane_.mesh.size() == 2) {
    const Submission& entry = lane_.in_flight.at(ticket);
    const int last = lane_.mesh.peer(1 - lane_.mesh.rank()).rank;
    lane_.in_flight.counters().waited_for(last, entry.stages[Stage::kSubmitted], now);
    const Request& request = *entry.request;
    lane_.in_flight.recorder().write_arrival(request.name, request.signature.collective, last, now);
  }
  lane_.in_flight.note_agreed(ticket, path, now);
}

// --- repeated calls

RoundsInMemory::Outcome RoundsInMemory::repeat(PersistentOp& op, const Call& call, Stages* stages, int n_looks) {
  SharedArena* const arena = lane_.data.arena();
  const auto round = round_for(*arena, op, call);
  if (!round || !op.take()) return std::nullopt;
  at(*arena, *round).fetch();
  if (stages != nullptr) stages->note(Stage::kTaken);
  const CallTensor& given = call.tensors.front();
  OutputBuffer allocated;
  if (given.memory.output == nullptr) {
    allocated = allocate(lane_.in_flight.output_memory(), call, round->first_dims, *arena);
  }
  std::byte* const output = given.memory.output == nullptr ? allocated.data.get() : given.memory.output;
  const DirectTensor tensor = direct_tensor(call, given, round->first_dims, arena->n_members());
  const RoundCall of_one{call.collective, root_of(call), {&tensor, 1}, arena->member(), arena->n_members()};
  if (output == nullptr || !enter(*arena, *round, of_one, stages)) {
    op.release();
    return std::nullopt;
  }
  if (!completes_within(n_looks, at(*arena, *round), round->number)) return wait_at(*round, call, stages);
  memory_.keep_line(*arena, *round);
  const bool are_alike = memory_.agree(*arena, *round);
  if (are_alike) {
    if (stages != nullptr) stages->note(Stage::kAgreed);
    gather(*arena, *round, of_one);
    of_one.combine(contributed_, {&output, 1});
    note_done(*arena, *round);
    if (stages != nullptr) stages->note(Stage::kDone);
    DirectRounds::done_at_once(op);
    if (op.is_unnamed()) ++n_unnamed_;
    lane_.log.note_direct_round(op);
    if (stages != nullptr) show(call, tensor.n_bytes, *stages);
    lane_.in_flight.counters().count_direct(call.collective, tensor.n_bytes, lane_.in_flight.of_set());
  }
  op.release();
  if (are_alike) return allocated.data != nullptr ? done_with(std::move(allocated)) : nullptr;
  memory_.give_back(*arena, *round);
  lane_.participant.unnamed().give_up();
  return std::nullopt;
}

std::optional<DirectRound> RoundsInMemory::round_for(const SharedArena& arena, PersistentOp& op,
                                                     const Call& call) const {
  auto round =
      op.is_unnamed() ? lane_.participant.unnamed().round_for(call, n_unnamed_) : DirectRounds::round_for(op, call);
  if (round && (!fits_given(call.tensors.front(), *round) || is_better_in_place(arena, call))) round.reset();
  return round;
}

// Times and records the round, as is wanted. REQUIRES: the call has its number, if it has no name; it is counted later.
void RoundsInMemory::show(const Call& call, std::size_t n_bytes, Stages& stages) {
  stages.path = Path::kDirect;
  const std::string automatic = call.name.empty() ? AutoNames::numbered(kUnnamed, n_unnamed_ - 1) : std::string();
  const std::string_view name = call.name.empty() ? automatic : call.name;
  Counters& counters = lane_.in_flight.counters();
  if (counters.is_due(call.collective)) {
    counters.time_direct({name, call.collective, call.process_set, call.lane, n_bytes}, stages,
                         lane_.in_flight.of_set());
  }
  if (!stages.is_recorded) return;
  lane_.in_flight.recorder().write({.name = name,
                                    .collective = call.collective,
                                    .process_set = call.process_set,
                                    .lane = call.lane,
                                    .n_bytes = n_bytes,
                                    .dtype = call.tensors.front().dtype},
                                   stages);
}

// Makes the call in flight. REQUIRES: this rank has arrived at the round, and holds the name.
std::shared_ptr<Operation> RoundsInMemory::wait_at(const DirectRound& round, const Call& call, const Stages* stages) {
  auto operation = std::make_shared<Operation>();
  PersistentOp* op = round.op;
  std::unique_ptr<Request> request = op->request_again(call);
  if (request == nullptr) {
    request = std::make_unique<Request>(make_request(call));
    settle_splits(*request, lane_.mesh.size(), lane_.mesh.peer(lane_.mesh.rank()).rank);
  }
  request->is_awaited = true;
  if (round.is_unnamed()) {
    op->release();
    request->name = kUnnamed;
    op = lane_.names.number(*request);
  }
  Submission submission{std::move(request), operation, op, stages != nullptr ? *stages : Stages{}};
  if (stages == nullptr) submission.stages.note(Stage::kSubmitted);
  submission.stages.path = Path::kRepeated;
  const Ticket ticket = lane_.in_flight.add(std::move(submission));
  Submission& entry = lane_.in_flight.at(ticket);
  pending_.push_back(*(round.is_unnamed()
                           ? lane_.participant.unnamed().arrive(*entry.request, ticket)
                           : lane_.participant.rounds().arrive(Direct::kInMemory, *op, *entry.request, ticket)));
  return operation;
}

// --- all calls

// Writes this member's contribution and arrives at the round. Returns false if the round is closed.
bool RoundsInMemory::enter(SharedArena& arena, const DirectRound& round, const RoundCall& call, Stages* stages) {
  if (!to_close_.empty()) {
    for (const auto& [number, other] : std::exchange(to_close_, {})) close(other);
  }
  std::byte* const to = memory_.for_writing(arena, round, call.collective);
  const bool has_room = to != nullptr;
  if (has_room && call.contributes(call.self)) call.contribute(to, RoundMemory::read_last(round, call.collective));
  RoundMemory::tag(arena, round);
  if (stages != nullptr) stages->note(Stage::kReady);
  if (has_room && at(arena, round).arrive(round.number)) return true;
  has_room ? memory_.give_back(arena, round) : close(round);
  return false;
}

// There may be no arena yet. Then the round is closed later, before this rank arrives at any round; no round is
// complete without this rank. Only the last round of each room is kept for that: all members have finished those
// before it.
void RoundsInMemory::close(const DirectRound& round) {
  if (SharedArena* const arena = lane_.data.arena()) {
    close_for_all(at(*arena, round), round.number, 0);
  } else {
    to_close_.insert_or_assign(round.room.number, round);
  }
}

// Closes a round for all members, and wakes those that have arrived: after an early call they may sleep, and must now
// report it. `n_own`: 1 if this rank has arrived, else 0. Returns false if the round is complete.
bool RoundsInMemory::close_for_all(Arrivals arrivals, std::uint64_t round, int n_own) {
  const bool is_closed = arrivals.close(round);
  if (is_closed && arrivals.n_arrived(round) > n_own) lane_.mesh.notify(Urgency::kUrgent);
  return is_closed;
}

// Sets `contributed_` to the contribution of each member, or of the root alone if there is one.
void RoundsInMemory::gather(const SharedArena& arena, const DirectRound& round, const RoundCall& call) {
  contributed_.clear();
  for (int member = 0; member < call.n_members; ++member) {
    if (call.contributes(member)) contributed_.push_back(memory_.of(member, arena, round));
  }
}

void RoundsInMemory::note_done(const SharedArena& arena, const DirectRound& round) {
  memory_.note_read(arena, round);
  lane_.count_direct_round();
}

// The member that alone contributes; -1 if all do.
int RoundsInMemory::root_of(const Terms& terms) const {
  return info(terms.collective).is_from_root ? root_member(terms, lane_.mesh) : -1;
}

RoundCall RoundsInMemory::call_of(const Submission& entry, std::span<const DirectTensor> tensors) const {
  const Signature& signature = entry.request->signature;
  return {signature.collective, root_of(signature), tensors, lane_.mesh.rank(), lane_.mesh.size()};
}

// Returns an error if there is no memory for the result.
Status RoundsInMemory::carry_out(const SharedArena& arena, const DirectRound& pending) {
  const Submission& entry = lane_.in_flight.at(pending.ticket);
  const FirstDims* const first_dims = pending.first_dims;
  std::vector<DirectTensor> tensors = direct_tensors(*entry.request, first_dims, lane_.mesh.size());
  const RoundCall call = call_of(entry, tensors);
  gather(arena, pending, call);
  std::vector<std::vector<std::int64_t>> splits;
  FirstDims rows_from = first_dims == nullptr ? entry.request->splits : *first_dims;
  if (has_own_splits(entry.request->signature)) {
    splits = read_splits(tensors.size(), contributed_);
    const std::size_t n_members = contributed_.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].all_splits = splits[i];
      for (std::size_t from = 0; from < n_members; ++from) {
        rows_from[i][from] = splits[i][from * n_members + static_cast<std::size_t>(call.self)];
      }
    }
  }
  const auto outputs = give_outputs(entry, &rows_from, lane_.mesh, lane_.in_flight.output_memory());
  if (outputs.ok()) call.combine(contributed_, outputs.value());
  note_done(arena, pending);
  return outputs.status();
}

}  // namespace ciranda
