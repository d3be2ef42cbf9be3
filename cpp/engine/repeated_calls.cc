#include "engine/repeated_calls.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/outputs.hpp"

namespace ciranda {
namespace {

// Whether there is room for what all contribute, if it was given at all.
bool fits_given(const Call& call, const Participant::DirectRound& round) {
  if (round.first_dims == nullptr || call.memory.output == nullptr) return true;
  return std::ranges::all_of(round.first_dims->front(), [&](auto n_rows) { return n_rows == call.shape.front(); });
}

std::int64_t n_rows_of_result(const Call& call, const Participant::DirectRound& round, const SharedArena& arena) {
  if (round.first_dims != nullptr) return *sum_of_rows(round.first_dims->front());
  return n_rows_of_result(call.collective, call.shape.front(), arena.member(), arena.n_members());
}

// For a result for which the caller has given no memory.
OutputBuffer allocate(const OutputMemory& from, const Call& call, const Participant::DirectRound& round,
                      const SharedArena& arena) {
  Shape shape(call.shape.begin(), call.shape.end());
  shape.front() = n_rows_of_result(call, round, arena);
  const std::size_t n_bytes = static_cast<std::size_t>(shape.front()) * call.row_bytes();
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

RepeatedCalls::Outcome RepeatedCalls::repeat(SharedArena& arena, const Call& call, Stages* stages, int n_looks) {
  PersistentOp* const op = names_.ops.find(0, call.name);
  if (op == nullptr) return std::nullopt;
  const auto round = round_for(*op, call);
  if (!round || !fits_given(call, *round) ||
      RoundsInMemory::is_better_in_place(arena, call.collective, call.memory.output, call.n_bytes())) {
    return std::nullopt;
  }
  if (!op->take()) return std::nullopt;
  if (stages != nullptr) stages->note(Stage::kTaken);
  OutputBuffer allocated;
  std::byte* output = call.memory.output;
  if (output == nullptr) {
    allocated = allocate(in_flight_.output_memory(), call, *round, arena);
    output = allocated.data.get();
  }
  RoundsInMemory::Outcome outcome = RoundsInMemory::Outcome::kClosed;
  if (output != nullptr) outcome = in_memory_.try_at_once(arena, *round, call, output, stages, n_looks);
  if (outcome == RoundsInMemory::Outcome::kOpen) return wait_at(arena, *round, call, stages);
  if (outcome == RoundsInMemory::Outcome::kMet) {
    participant_.done_at_once(*op);
    note_met(*round);
    if (stages != nullptr) record(call, *stages);
  }
  op->release();
  if (outcome == RoundsInMemory::Outcome::kApart) participant_.give_up_unnamed();
  if (outcome != RoundsInMemory::Outcome::kMet) return std::nullopt;
  return allocated.data != nullptr ? done_with(std::move(allocated)) : nullptr;
}

std::optional<Participant::DirectRound> RepeatedCalls::round_for(PersistentOp& op, const Call& call) const {
  return op.is_unnamed() ? participant_.round_for_unnamed(call, names_.automatic.n_unnamed())
                         : participant_.round_for(op, call);
}

void RepeatedCalls::note_met(const Participant::DirectRound& round) {
  if (round.is_unnamed()) names_.automatic.count_unnamed();
  log_.met(*round.op);
}

// REQUIRES: the call was counted, if it has no name.
void RepeatedCalls::record(const Call& call, Stages& stages) {
  stages.path = Path::kDirect;
  const std::string automatic = call.name.empty() ? names_.automatic.last_unnamed() : std::string();
  const std::string_view name = call.name.empty() ? automatic : call.name;
  in_flight_.recorder().write({.name = name, .collective = call.collective, .n_bytes = call.n_bytes()}, stages);
}

// This rank has come, and holds the name.
std::shared_ptr<Operation> RepeatedCalls::wait_at(const SharedArena& arena, const Participant::DirectRound& round,
                                                  const Call& call, const Stages* stages) {
  auto operation = std::make_shared<Operation>();
  Request request = make_request(call);
  settle_splits(request, arena.n_members(), arena.member());
  const std::uint64_t nth = names_.automatic.n_unnamed();
  PersistentOp* op = round.op;
  if (round.is_unnamed()) {
    op->release();
    request.name = kUnnamed;
    names_.automatic.number(request);
    op = names_.ops.take(op->lane(), request.name);
  }
  const Participant::Ticket ticket = in_flight_.add({std::move(request), operation, op});
  if (stages != nullptr) in_flight_.at(ticket).stages = *stages;
  in_flight_.at(ticket).stages.path = Path::kRepeated;
  const Request& pending = in_flight_.at(ticket).request;
  if (round.is_unnamed()) {
    participant_.come_unnamed(pending, nth, ticket);
  } else {
    participant_.come(Direct::kInMemory, *op, pending, ticket);
  }
  in_memory_.wait_for(arena, round, ticket);
  return operation;
}

}  // namespace ciranda
