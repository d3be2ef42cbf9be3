// Lane: direct rounds by messages (negotiate/rounds_by_messages.hpp), and which way of agreement a call goes.
#include <utility>

#include "engine/lane.hpp"

namespace ciranda {
namespace {

std::span<const std::byte> input_of(const Request& request) {
  return {request.memory.front().input, request.signature.tensors.front().n_bytes()};
}

}  // namespace

// Who waits for a small allreduce waits for messages, not for bytes.
std::span<const std::byte> Lane::small_input(const Request& request) const {
  if (!request.is_awaited || !may_go_by_messages(request.signature, mesh_.size(), limits_.swap_bytes)) return {};
  return input_of(request);
}

void Lane::send_input(const Participant::DirectRound& round, Participant::Ticket ticket, TimePoint now) {
  const auto input = input_of(in_flight_.at(ticket).request);
  if (by_messages_.empty()) inputs_probe_.begin(now);
  const InputMessage message{round.op->cache_id(), round.number, {input.begin(), input.end()}};
  in_flight_.begin(ticket);  // from here on the inputs of the others decide, or the log does
  control_.hurry();
  reports_.send(now);
  log_.tell_all(message);
  in_flight_.note(ticket, Stage::kReady);
  if (log_.above().empty()) log_.report(message, now);
  // What is refused would be our own bug, and shows as a call that is never done.
  if (Status status = by_messages_.begin(message, ticket); !status.ok()) logger_.error(status.message());
}

// For the coordinator it is a report.
Status Lane::hear_input(int from, const InputMessage& message, TimePoint now) {
  if (log_.expects(from, message)) {
    if (const auto heard = log_.hear(from, message, now); !heard.ok()) return heard.status();
  }
  if (Status status = by_messages_.hear(from, message); !status.ok()) {
    return Status::internal(status.message() + ", from " +
                            control_.peer_text(mesh_.ranks()[static_cast<std::size_t>(from)]));
  }
  return carry_out_by_messages(now);
}

Status Lane::carry_out_by_messages(TimePoint now) {
  if (by_messages_.empty()) return Status::ok_status();
  for (RoundsByMessages::Done& done : by_messages_.take_done()) {
    Participant::Execute entry;
    entry.requests.push_back(participant_.done(participant_.at(done.cache_id)));
    report_late(now);
    entry.inputs = std::move(done.inputs);
    in_flight_.note_agreed(done.ticket, Path::kSwap, in_flight_.recorder().now());
    if (Status status = data_.combine(entry); !status.ok()) return status;
    n_met_.fetch_add(1, std::memory_order_relaxed);
    const Status outcome = in_flight_.at(done.ticket).outcome;
    in_flight_.complete(done.ticket, outcome);
  }
  return Status::ok_status();
}

void Lane::report_late(TimePoint now) {
  for (const DuplicateMessage& late : participant_.take_late()) {
    control_.hurry();
    reports_.add(late, now);
  }
}

// New calls are refused. Whoever lacks this rank's input to a round knows then that it will not come.
void Lane::say_no_more_inputs() {
  if (std::exchange(has_said_no_more_inputs_, true)) return;
  control_.hurry();
  log_.tell_all(NoMoreInputsMessage{});
}

std::string_view Lane::agreement(Collective collective, std::size_t n_bytes) const {
  const Coordinator* coordinator = log_.coordinator();
  if (coordinator == nullptr) return "";
  const auto n_rows = static_cast<std::int64_t>(n_bytes);
  Signature signature;
  signature.collective = collective;
  signature.tensors.push_back({DataType::kUInt8, {n_rows}});
  const std::vector<std::int64_t> alike(mesh_.ranks().size(), n_rows);
  const Direct direct = coordinator->direct_for(signature, {alike});
  if (direct != Direct::kNot) {
    return direct == Direct::kInMemory ? "a direct round in shared memory" : "a direct round by messages";
  }
  const bool sends_inputs = contributes_inputs_ && may_go_by_messages(signature, mesh_.size(), limits_.swap_bytes);
  return sends_inputs ? "the log, inputs with the reports" : "the log";
}

}  // namespace ciranda
