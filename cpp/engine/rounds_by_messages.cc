#include "engine/rounds_by_messages.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/agreement_limits.hpp"
#include "observe/ticks.hpp"

namespace ciranda {
namespace {

std::span<const std::byte> input_of(const Request& request) {
  return {request.memory.front().input, request.signature.tensors.front().n_bytes()};
}

// The report for the coordinator, which does not need the input.
InputMessage as_report(const InputMessage& message) { return {message.cache_id, message.round, {}}; }

// All other members except the ones through which the log reaches this rank.
std::vector<LivenessProbe::Watched> ranks_beside(const LaneLog& log, const LaneMesh& mesh) {
  std::vector<LivenessProbe::Watched> ranks;
  const std::vector<int>& above = log.above();
  for (int member = 0; member < mesh.size(); ++member) {
    if (member == mesh.rank() || std::find(above.begin(), above.end(), member) != above.end()) continue;
    ranks.push_back({mesh.peer(member).rank, "whose input is awaited"});
  }
  return ranks;
}

}  // namespace

RoundsByMessages::RoundsByMessages(const LaneParts& lane, const Config& config, const StallLimits& patience,
                                   const Logger& logger)
    : lane_(lane),
      goes_by_messages_(lane.mesh.size() <= agreement_limits(config).message_ranks &&
                        !shares_memory_with_all(lane.mesh) && !lane.log.has_relays()),
      logger_(logger),
      inputs_(lane.mesh.rank(), lane.mesh.size()),
      probe_(goes_by_messages_ ? ranks_beside(lane.log, lane.mesh) : std::vector<LivenessProbe::Watched>(), patience,
             lane.control, logger) {}

bool RoundsByMessages::arrive(PersistentOp& op, Ticket ticket, TimePoint now) {
  const Submission& entry = lane_.in_flight.at(ticket);
  const bool is_duplicate = entry.op == nullptr;
  if (!goes_by_messages_ || is_duplicate || !entry.request->is_awaited) return false;
  const auto round = lane_.participant.rounds().arrive(Direct::kByMessages, op, *entry.request, ticket);
  if (!round) return false;
  const auto input = input_of(*entry.request);
  if (inputs_.empty()) probe_.begin(now);
  const auto message = [&] { return InputMessage{op.cache_id(), round->number, Payload(input)}; };
  lane_.in_flight.begin(ticket);  // from now on, the inputs of the others or the log decide
  lane_.control.hurry();
  lane_.reports.send(now);
  lane_.log.send_to_all(message());
  lane_.in_flight.note(ticket, Stage::kReady);
  if (lane_.log.above().empty()) lane_.log.report(as_report(message()), now);
  // An error would be a bug of the engine, and would look like a call that is never done.
  if (Status status = inputs_.begin(message(), ticket); !status.ok()) logger_.error(status.message());
  return true;
}

// At the coordinator, the input is also a report.
Status RoundsByMessages::on_input(int from, InputMessage message, TimePoint now) {
  const InputMessage report = as_report(message);
  if (lane_.log.expects(from, report)) {
    if (const auto handled = lane_.log.on_message(from, report, now); !handled.ok()) return handled.status();
  }
  if (Status status = inputs_.on_input(from, std::move(message)); !status.ok()) {
    return Status::internal(status.message() + ", from " + lane_.control.peer_text(lane_.mesh.peer(from).rank));
  }
  return carry_out(now);
}

Status RoundsByMessages::carry_out(TimePoint now) {
  if (inputs_.empty()) return Status::ok_status();
  for (const SentInputs::Done& done : inputs_.take_done()) {
    Participant::Execute entry;
    const Ticket ticket = lane_.participant.rounds().done(lane_.participant.names().at(done.cache_id));
    entry.requests.push_back({ticket, nullptr, nullptr});  // null: it is an allreduce in which all ranks take part
    lane_.reports.add_late(now);
    note_agreed(done);
    if (Status status = lane_.data.combine(entry, done.inputs); !status.ok()) return status;
    lane_.count_direct_round();
    const Status outcome = lane_.in_flight.at(done.ticket).outcome;
    lane_.in_flight.complete(done.ticket, outcome);
  }
  return Status::ok_status();
}

void RoundsByMessages::note_agreed(const SentInputs::Done& done) {
  const std::uint64_t now = ticks();
  if (done.last != lane_.mesh.rank()) {
    const std::uint64_t submitted = lane_.in_flight.at(done.ticket).stages[Stage::kSubmitted];
    lane_.in_flight.counters().waited_for(lane_.mesh.peer(done.last).rank, submitted, now);
  }
  lane_.in_flight.note_agreed(done.ticket, Path::kByMessages, now);
}

void RoundsByMessages::send_no_more() {
  if (!goes_by_messages_ || std::exchange(has_sent_no_more_, true)) return;
  lane_.control.hurry();
  lane_.log.send_to_all(NoMoreInputsMessage{});
}

void RoundsByMessages::fail_lost(const Status& why) {
  for (const Ticket ticket : inputs_.lost()) {
    inputs_.forget(ticket);
    lane_.in_flight.complete(ticket, why);
  }
}

}  // namespace ciranda
