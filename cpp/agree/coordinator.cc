#include "agree/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "agree/round_rooms.hpp"
#include "agree/sent_inputs.hpp"
#include "agree/unnamed.hpp"

namespace ciranda {
namespace {

// Null instead of empty first dimensions, as room_for() expects.
const FirstDims* if_any(const FirstDims& first_dims) { return first_dims.empty() ? nullptr : &first_dims; }

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      members_(options_.size, options_.ranks, options_.hosts),
      cache_ids_(options_.cache_capacity, options_.size),
      ready_(options_),
      open_(options_),
      negotiations_(options_, members_, cache_ids_, ready_, open_),
      groups_(options_, members_, ready_, negotiations_, open_),
      standstill_(options_.size) {}

// --- reports

Status Coordinator::on_request(int rank, RequestMessage message, TimePoint now) {
  if (Status status = validate(message.name, message.signature, members_.ranks()); !status.ok()) {
    return Status::internal(members_.rank_text(rank) + " reported an invalid request: " + status.message());
  }
  NameState& name = negotiations_.name_for(message.name, message.is_cacheable);
  name.priority = message.priority;
  return report(name, {rank, now, std::move(message.signature), message.is_deferrable, {}, false, message.home});
}

Status Coordinator::on_message(int rank, Message&& message, TimePoint now) {
  if (auto* request = std::get_if<RequestMessage>(&message)) return on_request(rank, std::move(*request), now);
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) return on_ready(rank, *ready, now);
  if (const auto* groups = std::get_if<GroupsMessage>(&message)) {
    if (!groups->groups.empty()) standstill_.moves(rank);
    return groups_.report(*groups, rank, now);
  }
  if (const auto* duplicate = std::get_if<DuplicateMessage>(&message)) {
    Reported reported{rank, now};
    reported.is_duplicate = true;
    return report(negotiations_.name_for(duplicate->name, true), std::move(reported));
  }
  if (const auto* input = std::get_if<InputMessage>(&message)) return on_input(rank, *input, now);
  if (const auto* no_input = std::get_if<NoInputMessage>(&message)) return on_no_input(rank, *no_input);
  if (const auto* join = std::get_if<JoinMessage>(&message)) return on_join(rank, *join);
  if (const auto* forgotten = std::get_if<ForgottenMessage>(&message)) return on_forgotten(rank, *forgotten);
  if (const auto* standing = std::get_if<StandingMessage>(&message)) on_standing(rank, *standing);
  if (const auto* turn = std::get_if<TurnMessage>(&message)) on_turn(*turn);
  if (std::holds_alternative<WaitingMessage>(message)) on_waiting(rank);
  return Status::ok_status();
}

Status Coordinator::check_cache_id(int rank, std::uint32_t cache_id) const {
  if (cache_ids_.has(cache_id)) return Status::ok_status();
  return Status::internal(members_.rank_text(rank) + " reported cache id " + std::to_string(cache_id) + " of only " +
                          std::to_string(cache_ids_.names().size()));
}

Status Coordinator::on_ready(int rank, const ReadyMessage& message, TimePoint now) {
  for (const ReadyMessage::Item& item : message.items) {
    if (Status status = check_cache_id(rank, item.cache_id); !status.ok()) return status;
    NameState& name = cache_ids_.name(item.cache_id);
    if (Status status = report(name, {rank, now, std::nullopt, item.is_deferrable}); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status Coordinator::on_input(int rank, const InputMessage& message, TimePoint now) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Reported reported{rank, now};
  reported.direct_round = message.round;
  return report(cache_ids_.name(message.cache_id), std::move(reported));
}

Status Coordinator::on_no_input(int rank, const NoInputMessage& message) {
  if (Status status = check_cache_id(rank, message.cache_id); !status.ok()) return status;
  Negotiation& negotiation = cache_ids_.name(message.cache_id).negotiation;
  if (negotiation.direct_round == message.round && !negotiation.has_arrived(rank))
    negotiations_.abandon_direct_round(negotiation);
  return Status::ok_status();
}

Status Coordinator::on_forgotten(int rank, const ForgottenMessage& message) {
  if (!cache_ids_.is_to_answer(rank)) {
    return Status::internal(members_.rank_text(rank) +
                            " answered that it has forgotten cache ids, without being told to");
  }
  for (const std::uint32_t cache_id : message.kept) {
    if (Status status = check_cache_id(rank, cache_id); !status.ok()) return status;
  }
  cache_ids_.forgotten(rank, message.kept);
  return Status::ok_status();
}

Status Coordinator::on_join(int rank, const JoinMessage& message) {
  if (message.nth != n_times_all_joined_ + 1) {
    return Status::internal(members_.rank_text(rank) + " joins for the " + std::to_string(message.nth) +
                            ". time, where all have joined " + std::to_string(n_times_all_joined_) + " times");
  }
  if (members_.has_joined(rank)) return Status::ok_status();
  groups_.disperse_all();
  standstill_.moves(rank);
  negotiations_.join(rank);
  return Status::ok_status();
}

Status Coordinator::on_relayed(const RelayedMessage& relayed, TimePoint now) {
  for (const RelayedMessage::Item& item : relayed.items) {
    const auto* groups = std::get_if<GroupsMessage>(&item.report);
    if (item.ranks.empty() && groups != nullptr) {
      if (Status status = groups_.report_by_all(*groups, now); !status.ok()) return status;
    }
    for (const std::int32_t rank : item.ranks) {
      if (rank < 0 || rank >= options_.size) return Status::internal("a relay reports for an unknown rank");
      Message message = std::visit([](const auto& report) { return Message(report); }, item.report);
      if (Status status = on_message(rank, std::move(message), now); !status.ok()) return status;
    }
  }
  is_waited_for_ = relayed.is_waiting;
  return Status::ok_status();
}

Status Coordinator::report(NameState& name, Reported reported) {
  groups_.touch(name);
  standstill_.moves(reported.rank);
  return negotiations_.report(name, std::move(reported));
}

void Coordinator::fail_all(const Status& why) {
  groups_.disperse_all();
  negotiations_.fail_all(why);
}

std::vector<StallReport> Coordinator::check_stalls(TimePoint now) {
  if (!open_.is_due(now)) return {};
  const std::optional<TimePoint> groups_due = groups_.disperse_stalled(now);
  return negotiations_.check_stalls(groups_due, now);
}

// --- the log

std::vector<LogEntry> Coordinator::take_entries(bool wire_is_idle, std::size_t n_bytes_under_way) {
  std::vector<LogEntry> entries(turns_.begin(), turns_.end());
  turns_.clear();
  negotiations_.take_ended(entries);
  const std::optional<int> last_joined = members_.last_joined();
  for (const auto& batch : ready_.take(wire_is_idle, has_waiting_rank() || last_joined, n_bytes_under_way)) {
    entries.push_back(execute(batch));
  }
  if (last_joined && ready_.is_empty()) {
    entries.emplace_back(JoinedEntry{*last_joined});
    members_.return_all();
    ++n_times_all_joined_;
  }
  if (auto plan = groups_.publish(ready_.order(), cache_ids_.names())) entries.emplace_back(std::move(*plan));
  if (auto forget = cache_ids_.forget_some(!groups_.is_previous_in_use())) entries.emplace_back(std::move(*forget));
  if (entries.empty() && ready_.is_empty() && standstill_.may_hold(members_, n_entries_)) {
    groups_.disperse_all();
    negotiations_.check_standstill(standstill_);
    negotiations_.take_ended(entries);
  }
  n_entries_ += entries.size();
  return entries;
}

LogEntry Coordinator::execute(const ReadyQueue::Batch& batch) {
  const Check check = next_check(batch);
  if (!batch.groups.empty()) {
    ExecuteGroupsEntry entry{groups_.plan(), {}, check};
    for (PlannedGroup* group : batch.groups) {
      entry.groups.push_back(group->number);
      groups_.close(*group);
    }
    return entry;
  }
  ExecuteEntry entry;
  entry.check = check;
  for (NameState* name : batch.names) entry.items.push_back(execute(*name));
  return entry;
}

Check Coordinator::next_check(const ReadyQueue::Batch& batch) {
  if (options_.check_interval == 0 || options_.size == 1) return Check::kNone;
  if (batch.groups.empty()) {  // groups consist of allreduces with all ranks
    const NameState& name = *batch.names.front();
    const Signature& signature = name.signature();
    if (!info(signature.collective).is_same_on_all) return Check::kNone;
    // A rank that has joined gets a copy of other results, too, but not of Adasum's.
    if (signature.op == ReduceOp::kAdasum && !name.negotiation.has_all()) return Check::kNone;
  }
  if (++n_unchecked_ < options_.check_interval) return Check::kRemember;
  n_unchecked_ = 0;
  return Check::kCompare;
}

ExecuteItem Coordinator::execute(NameState& name) {
  ExecuteItem item;
  const bool in_full = name.negotiation.has_full();
  const bool is_new_kind = in_full || name.way() != name.agreed_way;
  name.is_being_forgotten = false;
  item.absent = name.negotiation.absent();
  if (in_full) name.update_agreed();
  name.agreed_way = name.way();
  if (is_new_kind) name.kind = ready_.kind_of(name.agreed, name.agreed_way);
  if (in_full || name.cache_id == kNoCacheId || !item.absent.empty()) {
    // While ranks may still report by the previous plan, the cache ids of its names must not be reassigned.
    NameState* before = cache_ids_.assign(name, !groups_.is_previous_in_use());
    if (before != nullptr) negotiations_.forget_if_unused(*before);
    item.is_defined_here = true;
    item.name = name.name;
    item.first_dims = name.first_dims;
    item.way = name.agreed_way;
  }
  if (!item.absent.empty()) {
    item.signature = name.agreed;
    for (auto& by_rank : item.first_dims) {
      for (const std::int32_t rank : item.absent) by_rank[static_cast<std::size_t>(rank)] = 0;
    }
  }
  item.cache_id = name.cache_id;
  cache_ids_.note_use(name.cache_id);
  if (may_do_without_log(name)) item.direct = direct_for(name.agreed, name.first_dims);
  // A rank that leaves a direct round reports the call as unchanged, but a home that has changed must be told.
  const auto is_elsewhere = [](HomeId home) { return home != kHostHome; };
  if (item.direct != Direct::kNot && std::ranges::any_of(name.homes(), is_elsewhere)) item.direct = Direct::kNot;
  negotiations_.close(name);
  negotiations_.forget_if_unused(name);
  return item;
}

// Ranks can execute the next call without the coordinator if it had no influence on this one: no rank held the call
// back to be fused, none has joined, and no duplicate's error is deferred, for which the coordinator must see the next
// calls. The same holds for the next call without a name if no other negotiation is open: with several in flight, the
// next one has been reported already.
bool Coordinator::may_do_without_log(const NameState& name) const {
  if (!name.negotiation.has_all() || name.negotiation.n_deferrable > 0 || negotiations_.has_deferred_duplicates())
    return false;
  if (name.cache_id != kNoCacheId) return true;
  return options_.direct == Direct::kInMemory && !name.is_cacheable && is_unnamed(name.name) && open_.n_open() == 1 &&
         UnnamedSignatures::may_go_direct(name.agreed, if_any(name.first_dims), options_.has_buffers());
}

// If results are compared, all calls use the log.
Direct Coordinator::direct_for(const Signature& signature, const FirstDims& first_dims) const {
  if (options_.direct == Direct::kNot || options_.check_interval != 0) return Direct::kNot;
  bool is_small = false;
  if (options_.direct == Direct::kInMemory) {
    const auto room = room_for(signature, if_any(first_dims), options_.has_buffers());
    is_small = room && room->most_bytes() <= options_.limits.memory_bytes;
  } else {
    is_small = may_go_by_messages(signature, options_.size, options_.limits.message_bytes);
  }
  return is_small ? options_.direct : Direct::kNot;
}

}  // namespace ciranda
