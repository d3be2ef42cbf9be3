#include "negotiate/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "negotiate/unnamed.hpp"

namespace ciranda {
namespace {

LearnedOrderOptions learned_order_options(const CoordinatorOptions& options) {
  return {options.limits.planned_group_bytes, options.fusion_threshold_bytes, options.most_groups};
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      members_(options_.size, options_.ranks, options_.hosts),
      cache_ids_(options_.cache_capacity, options_.size),
      ready_(options_.learned_order, learned_order_options(options_), options_.limits),
      groups_(options_.size, options_.fusion_threshold_bytes) {}

// --- reports

Status Coordinator::on_request(int rank, RequestMessage message, TimePoint now) {
  if (Status status = validate(message.name, message.signature, members_.ranks()); !status.ok()) {
    return Status::internal(members_.rank_text(rank) + " reported what it should have refused: " + status.message());
  }
  NamedRounds& name = name_for(message.name, message.is_cacheable);
  name.priority = message.priority;
  return report(name, {rank, now, std::move(message.signature), message.is_deferrable});
}

Status Coordinator::on_message(int rank, Message&& message, TimePoint now) {
  if (auto* request = std::get_if<RequestMessage>(&message)) return on_request(rank, std::move(*request), now);
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) return on_ready(rank, *ready, now);
  if (const auto* groups = std::get_if<GroupsMessage>(&message)) return on_groups(rank, *groups, now);
  if (const auto* duplicate = std::get_if<DuplicateMessage>(&message)) return on_duplicate(rank, *duplicate, now);
  if (auto* input = std::get_if<InputMessage>(&message)) return on_input(rank, std::move(*input), now);
  if (const auto* no_input = std::get_if<NoInputMessage>(&message)) return on_no_input(rank, *no_input);
  if (const auto* join = std::get_if<JoinMessage>(&message)) return on_join(rank, *join);
  if (const auto* forgotten = std::get_if<ForgottenMessage>(&message)) return on_forgotten(rank, *forgotten);
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
    Reported reported{rank, now, std::nullopt, item.is_deferrable};
    reported.input = item.input;
    if (Status status = report(cache_ids_.name(item.cache_id), std::move(reported)); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status Coordinator::on_duplicate(int rank, const DuplicateMessage& message, TimePoint now) {
  Reported reported{rank, now};
  reported.is_duplicate = true;
  return report(name_for(message.name, true), std::move(reported));
}

Status Coordinator::hear_duplicate(NamedRounds& name, const Reported& reported) {
  const int rank = reported.rank;
  if (answer_owed(name, rank)) return Status::ok_status();
  const bool was_pending = name.round.has_arrived(rank);
  arrive(name, rank, Arrival::kUnchanged, reported.when);
  fail_round(name, ErrorKind::kInvalidArgument,
             "Duplicate name '" + name.name + "': " + members_.text(rank) +
                 " submitted it again while its first use was still pending. Wait for the first one, or give each its "
                 "own name.",
             Duplicate{rank, was_pending});
  return Status::ok_status();
}

Status Coordinator::on_forgotten(int rank, const ForgottenMessage& message) {
  if (!cache_ids_.is_to_answer(rank)) {
    return Status::internal(members_.rank_text(rank) + " has forgotten what nobody told it to");
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
  disperse_all();
  members_.join(rank);
  forgive_joined(rank);
  std::vector<NamedRounds*> completed;
  for (auto& [key, name] : names_) {
    Round& round = name->round;
    if (!round.has_arrived(rank)) end_hope_of_direct_round(round);
    if (round.is_open && !round.is_ready && round.is_complete(members_)) completed.push_back(name.get());
  }
  for (NamedRounds* name : completed) complete_round(*name);
  return Status::ok_status();
}

NamedRounds& Coordinator::name_for(const std::string& name, bool is_cacheable) {
  std::unique_ptr<NamedRounds>& entry = names_[name];
  if (!entry) entry = std::make_unique<NamedRounds>(name, is_cacheable, options_.size);
  return *entry;
}

Status Coordinator::report(NamedRounds& name, Reported reported) {
  const int rank = reported.rank;
  touch(name);
  if (members_.has_joined(rank) && !reported.is_duplicate) {
    return Status::internal(members_.rank_text(rank) + " reported '" + name.name + "' after it had joined");
  }
  if (name.round.has_come_directly(rank)) {
    members_.heard(rank, name.name, reported.when);
    name.later.push_back(std::move(reported));
    return Status::ok_status();
  }
  return hear(name, std::move(reported));
}

Status Coordinator::hear(NamedRounds& name, Reported reported) {
  const int rank = reported.rank;
  Round& round = name.round;
  if (!reported.direct_round) end_hope_of_direct_round(round);
  if (reported.is_duplicate) return hear_duplicate(name, reported);
  if (answer_owed(name, rank)) return Status::ok_status();
  if (round.has_arrived(rank)) {
    return Status::internal(members_.rank_text(rank) + " reported '" + name.name + "' before it was answered");
  }
  std::optional<Signature>& signature = reported.signature;
  arrive(name, rank, signature ? Arrival::kInFull : Arrival::kUnchanged, reported.when);
  if (reported.direct_round && round.n_arrived == 1) {
    round.is_direct = !members_.has_any_joined();
    round.direct_round = *reported.direct_round;
  }
  round.is_deferrable = round.is_deferrable && reported.is_deferrable;
  round.is_any_deferrable = round.is_any_deferrable || reported.is_deferrable;
  if (!std::exchange(round.is_pressing, !round.is_deferrable && round.has_arrived(0)) && round.is_pressing) {
    ++n_pressing_rounds_;
  }
  if (!reported.input.empty()) round.contribute(rank, reported.input, options_.limits.swap_bytes);
  if (signature) {
    round.in_full.resize(static_cast<std::size_t>(options_.size));
    round.in_full[static_cast<std::size_t>(rank)] = std::move(*signature);
  }
  if (round.is_direct) return round.has_all() ? end_direct_round(name) : Status::ok_status();
  if (std::string why = name.disagreement(rank, members_); !why.empty()) {
    fail_round(name, ErrorKind::kMismatch,
               "Ranks disagree about '" + name.name + "': " + why + ". Every rank must make the same call for a name.");
  } else if (round.is_complete(members_)) {
    complete_round(name);
  }
  return Status::ok_status();
}

// --- rounds

void Coordinator::open_round(Round& round, TimePoint now) {
  round.is_open = true;
  round.opened = now;
  round.n_failed_before = n_failed_rounds_;
  round.next_report = now + options_.stall_warning;
  ++n_open_rounds_;
  if (!stall_check_due_) stall_check_due_ = first_due(round.opened, round.next_report);
}

void Coordinator::arrive(NamedRounds& name, int rank, Arrival arrival, TimePoint now) {
  members_.heard(rank, name.name, now);
  if (!name.round.is_open) open_round(name.round, now);
  name.round.arrive(rank, arrival);
}

void Coordinator::complete_round(NamedRounds& name) {
  if (!name.round.has_all() && name.signature().needs_all) {
    fail_round(name, ErrorKind::kMismatch,
               std::string(to_string(name.signature().collective)) + " '" + name.name +
                   "' needs all ranks, and some have joined and take no part any more: " + members_.joined_text() +
                   ".");
    return;
  }
  if (name.is_root_absent(members_)) {
    const Signature& signature = name.signature();
    fail_round(name, ErrorKind::kInvalidArgument,
               std::string(to_string(signature.collective)) + " '" + name.name + "': its root, rank " +
                   std::to_string(signature.root) +
                   ", has joined and takes no part any more. Choose a root that works to the end, for example the rank "
                   "that join() returned last time.");
    return;
  }
  name.round.is_ready = true;
  ready_.push(name);
  forgive_duplicates(name.round.n_failed_before, &name.round);
}

void Coordinator::close_round(NamedRounds& name) {
  n_pressing_rounds_ -= name.round.is_pressing ? 1 : 0;
  name.round.close();
  if (--n_open_rounds_ == 0) stall_check_due_.reset();
}

void Coordinator::forget_if_unused(NamedRounds& name) {
  if (name.cache_id != kNoCacheId || name.round.is_open || !name.owed.empty()) return;
  std::erase(owed_duplicates_, &name);
  names_.erase(std::string(name.name));
}

// --- failures, and what the other ranks then owe

void Coordinator::fail_round(NamedRounds& name, ErrorKind kind, const std::string& text,
                             std::optional<Duplicate> duplicate) {
  if (name.round.is_ready) ready_.remove(name);  // complete but not yet in the log: it fails instead
  const int n_calls = duplicate && duplicate->was_pending ? 2 : 1;
  std::vector<std::int32_t> targets;
  NamedRounds::Owed owed{kind, text, duplicate.has_value(), n_failed_rounds_, {}, 0};
  owed.n_calls.resize(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) {
    int n_made = name.round.has_arrived(rank) ? 1 : 0;
    if (duplicate && rank == duplicate->rank) n_made = n_calls;
    targets.insert(targets.end(), static_cast<std::size_t>(n_made), rank);
    if (members_.has_joined(rank)) continue;  // it will not make the call
    owed.n_calls[static_cast<std::size_t>(rank)] = static_cast<std::uint8_t>(n_calls - n_made);
    owed.n_calls_of_all += static_cast<std::size_t>(n_calls - n_made);
  }
  if (owed.n_calls_of_all > 0) name.owed.push_back(std::move(owed));
  const bool is_listed = std::find(owed_duplicates_.begin(), owed_duplicates_.end(), &name) != owed_duplicates_.end();
  if (duplicate && !is_listed) owed_duplicates_.push_back(&name);
  ++n_failed_rounds_;
  failures_.add(name, kind, text, targets);
  close_round(name);
  forget_if_unused(name);
}

bool Coordinator::answer_owed(NamedRounds& name, int rank) {
  const auto found = std::find_if(name.owed.begin(), name.owed.end(),
                                  [&](const auto& owed) { return owed.n_calls[static_cast<std::size_t>(rank)] > 0; });
  if (found == name.owed.end()) return false;
  failures_.add(name, found->kind, found->text, {rank});
  --found->n_calls[static_cast<std::size_t>(rank)];
  if (--found->n_calls_of_all == 0) name.owed.erase(found);
  forget_if_unused(name);
  return true;
}

// Only one rank may have made the duplicate call. When later all ranks have taken part in a round that opened after it,
// those that have not made it by then will not: their next call is a call of its own.
void Coordinator::forgive_duplicates(std::uint64_t n_failed_before, const Round* round) {
  for (NamedRounds* name : std::exchange(owed_duplicates_, {})) {
    std::erase_if(name->owed, [&](const NamedRounds::Owed& owed) {
      return owed.is_duplicate && owed.n_failed_before < n_failed_before;
    });
    const bool still_owed =
        std::any_of(name->owed.begin(), name->owed.end(), [](const auto& owed) { return owed.is_duplicate; });
    if (still_owed) {
      owed_duplicates_.push_back(name);
    } else if (&name->round != round) {
      forget_if_unused(*name);
    }
  }
}

// Who has joined makes no further calls: it owes no answer to any.
void Coordinator::forgive_joined(int rank) {
  std::vector<NamedRounds*> forgiven;
  for (auto& [key, name] : names_) {
    for (NamedRounds::Owed& owed : name->owed) owed.forgive(rank);
    if (std::erase_if(name->owed, [](const auto& owed) { return owed.n_calls_of_all == 0; }) > 0) {
      forgiven.push_back(name.get());
    }
  }
  for (NamedRounds* name : forgiven) forget_if_unused(*name);
}

void Coordinator::fail_all(const Status& why) {
  disperse_all();
  std::vector<NamedRounds*> open;
  for (auto& [key, name] : names_) {
    if (name->round.is_open) open.push_back(name.get());
  }
  for (NamedRounds* name : open) fail_round(*name, why.kind(), why.message());
}

// --- the log

std::vector<LogEntry> Coordinator::take_entries(bool wire_is_idle, std::size_t n_bytes_under_way) {
  std::vector<LogEntry> entries;
  for (FailEntry& failure : failures_.take()) entries.emplace_back(std::move(failure));
  for (const CancelEntry& cancel : std::exchange(cancellations_, {})) entries.emplace_back(cancel);
  const std::optional<int> last_joined = members_.last_joined();
  for (const auto& batch : ready_.take(wire_is_idle, has_waiting_rank() || last_joined, n_bytes_under_way)) {
    entries.push_back(execute(batch));
  }
  if (last_joined && ready_.is_empty()) {
    entries.emplace_back(JoinedEntry{*last_joined});
    members_.return_all();
    ++n_times_all_joined_;
  }
  publish_plan(entries);
  if (auto forget = cache_ids_.forget_some(takes_cache_ids_back())) entries.emplace_back(std::move(*forget));
  return entries;
}

LogEntry Coordinator::execute(const ReadyQueue::Batch& batch) {
  const Check check = next_check(batch);
  if (!batch.groups.empty()) {
    ExecuteGroupsEntry entry{groups_.plan(), {}, check};
    for (PlannedGroup* group : batch.groups) {
      entry.groups.push_back(group->number);
      close(*group);
    }
    return entry;
  }
  ExecuteEntry entry;
  entry.check = check;
  if (batch.names.size() == 1 && batch.names.front()->round.has_all_inputs()) {
    entry.inputs = batch.names.front()->round.inputs;
  }
  for (NamedRounds* name : batch.names) entry.items.push_back(execute_item(*name));
  return entry;
}

Check Coordinator::next_check(const ReadyQueue::Batch& batch) {
  if (options_.check_interval == 0 || options_.size == 1) return Check::kNone;
  if (batch.groups.empty()) {  // groups are of allreduces, with all ranks
    const NamedRounds& name = *batch.names.front();
    const Signature& signature = name.signature();
    if (!info(signature.collective).is_same_on_all) return Check::kNone;
    // Of other results a rank that has joined gets a copy too.
    if (signature.op == ReduceOp::kAdasum && !name.round.has_all()) return Check::kNone;
  }
  if (++n_unchecked_ < options_.check_interval) return Check::kRemember;
  n_unchecked_ = 0;
  return Check::kCompare;
}

ExecuteItem Coordinator::execute_item(NamedRounds& name) {
  ExecuteItem item;
  const bool in_full = name.round.has_full();
  name.is_being_forgotten = false;
  item.absent = name.round.absent();
  if (in_full) {
    name.update_agreed();
    name.kind = ready_.kind_of(name.agreed);
  }
  if (in_full || name.cache_id == kNoCacheId || !item.absent.empty()) {
    NamedRounds* before = cache_ids_.assign(name, takes_cache_ids_back());
    if (before != nullptr) forget_if_unused(*before);
    item.is_defined_here = true;
    item.name = name.name;
    item.first_dims = name.first_dims;
  }
  if (!item.absent.empty()) {
    item.signature = name.agreed;
    for (auto& by_rank : item.first_dims) {
      for (const std::int32_t rank : item.absent) by_rank[static_cast<std::size_t>(rank)] = 0;
    }
  }
  item.cache_id = name.cache_id;
  cache_ids_.note_use(name.cache_id);
  if (may_do_without_log(name) || may_do_unnamed_without_log(name)) {
    item.direct = direct_for(name.agreed, name.first_dims);
  }
  close_round(name);
  forget_if_unused(name);
  return item;
}

// Ranks can do without the coordinator where it had nothing to say: no rank held the call back to travel with others,
// and none has joined.
bool Coordinator::may_do_without_log(const NamedRounds& name) const {
  return name.cache_id != kNoCacheId && name.round.has_all() && !name.round.is_any_deferrable;
}

// Likewise for the next call without a name. Of many in flight, the next was reported before this one is carried out.
bool Coordinator::may_do_unnamed_without_log(const NamedRounds& name) const {
  return options_.direct == Direct::kInMemory && !name.is_cacheable && is_unnamed(name.name) && name.round.has_all() &&
         !name.round.is_any_deferrable && n_open_rounds_ == 1 && UnnamedSignatures::may_meet(name.agreed);
}

}  // namespace ciranda
