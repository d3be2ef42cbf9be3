#include "agree/participant.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

using State = PersistentOp::State;

std::string text_of(std::uint32_t cache_id) { return "cache id " + std::to_string(cache_id); }

}  // namespace

// --- reports

Message Participant::submit(PersistentOp& op, const Request& request, Ticket ticket) {
  const bool is_duplicate = !op.is_idle();
  const bool is_unchanged = !is_duplicate && KnownNames::is_unchanged(op, request);
  PendingCall call{ticket, nullptr, request.is_deferrable, !request.is_cacheable && is_unnamed(request.name)};
  call.home = request.home;
  if (!is_duplicate && !is_unchanged) call.in_full = std::make_unique<Signature>(request.signature);
  calls_.add(op, std::move(call));
  DirectRounds::close(op);
  if (is_duplicate) return DuplicateMessage{op.name()};
  if (is_unchanged && request.is_deferrable) {
    if (std::optional<Message> message = held_.hold(op)) return std::move(*message);
  }
  op.become(State::kReported);
  if (is_unchanged) return ReadyMessage{{{op.cache_id(), request.is_deferrable}}};
  return RequestMessage{op.name(),        request.signature, request.is_cacheable, request.is_deferrable,
                        request.priority, request.home};
}

Message Participant::submit_duplicate(PersistentOp& op, Ticket ticket) {
  calls_.add(op, {ticket});
  if (op.state() != State::kHeld) op.become(State::kReported);
  DirectRounds::close(op);
  return DuplicateMessage{op.name()};
}

// --- the log

Result<Participant::Action> Participant::apply(const LogEntry& entry) {
  if (const auto* to_execute = std::get_if<ExecuteEntry>(&entry)) return execute(*to_execute);
  if (const auto* joined = std::get_if<JoinedEntry>(&entry)) return end_join(*joined);
  if (const auto* end = std::get_if<EndEntry>(&entry)) return Action(*end);
  if (const auto* turn = std::get_if<TurnEntry>(&entry)) return Action(*turn);
  if (const auto* planned = std::get_if<PlanEntry>(&entry)) return plan(*planned);
  if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) return execute(*groups);
  if (const auto* cancelled = std::get_if<CancelEntry>(&entry)) return cancel(*cancelled);
  if (const auto* to_forget = std::get_if<ForgetEntry>(&entry)) return forget(*to_forget);
  return fail(std::get<FailEntry>(entry));
}

Status Participant::misfit(const std::string& what_the_log_does, const std::string& what_this_rank_lacks) const {
  return Status::internal("the log " + what_the_log_does + ", which rank " + std::to_string(rank_) + " " +
                          what_this_rank_lacks);
}

Result<Participant::Action> Participant::execute(const ExecuteEntry& entry) {
  Execute action;
  action.check = entry.check;
  action.requests.reserve(entry.items.size());
  for (const ExecuteItem& item : entry.items) {
    Result<Ready> ready = execute(item, action.to_close);
    if (!ready.ok()) return ready.status();
    action.requests.push_back(std::move(ready).value());
  }
  return Action(std::move(action));
}

Result<Participant::Action> Participant::execute(const ExecuteGroupsEntry& entry) {
  Execute action;
  action.check = entry.check;
  for (const std::uint32_t number : entry.groups) {
    const auto* cache_ids = held_.find(entry.plan, number);
    if (cache_ids == nullptr) {
      return misfit("executes group " + std::to_string(number) + " of plan " + std::to_string(entry.plan),
                    "does not know");
    }
    for (const std::uint32_t cache_id : *cache_ids) {
      PersistentOp& op = names_.at(cache_id);
      if (op.state() != State::kReported) {
        return misfit("executes " + text_of(cache_id) + " with its group", "has not reported");
      }
      action.requests.push_back(take(op));
    }
  }
  return Action(std::move(action));
}

Result<Participant::Ready> Participant::execute(const ExecuteItem& item, std::vector<DirectRound>& to_close) {
  const bool is_id_possible = names_.may_assign(item.cache_id);
  const bool is_absent = std::find(item.absent.begin(), item.absent.end(), rank_) != item.absent.end();
  if (is_absent && is_id_possible && calls_.has_joined() && item.is_defined_here) return stand_in(item);
  PersistentOp* const op = is_absent || !is_id_possible ? nullptr : names_.find(item);
  const bool is_reported = op != nullptr && op->is_reported();
  if (is_reported && item.is_defined_here) names_.learn(item, *op);
  if (!is_reported || !op->known()) {
    return misfit("executes " + (item.is_defined_here ? "'" + item.name + "'" : text_of(item.cache_id)),
                  "has not reported");
  }
  Ready ready = take(*op);
  if (!item.absent.empty()) ready.absence = std::make_shared<const ExecuteItem>(item);
  open_rounds(item, *op, to_close);
  if (item.is_defined_here) PersistentOps::remove_if_unused(*op);
  return ready;
}

Participant::Ready Participant::stand_in(const ExecuteItem& item) {
  Ready ready;
  ready.absence = std::make_shared<const ExecuteItem>(item);
  ready.way = item.way;
  if (!item.first_dims.empty()) ready.first_dims = std::make_shared<const FirstDims>(item.first_dims);
  names_.learn_without_call(item);
  return ready;
}

Participant::Ready Participant::take(PersistentOp& op) {
  return {calls_.take(op), op.first_dims(), nullptr, op.knowledge.way()};
}

// By messages, the other ranks start the next rounds without a rank that has joined.
void Participant::open_rounds(const ExecuteItem& item, PersistentOp& op, std::vector<DirectRound>& to_close) {
  const bool is_in_memory = item.direct == Direct::kInMemory;
  if (item.cache_id != kNoCacheId) {
    rounds_.open(op, item.direct);
  } else if (is_in_memory) {
    unnamed_.open(*op.known(), op.first_dims(), to_close);
  }
  if (!op.is_idle() || (calls_.has_joined() && !is_in_memory)) DirectRounds::close(op, to_close);
}

Result<Participant::Action> Participant::fail(const FailEntry& entry) {
  Fail action{{}, Status(entry.kind, entry.text), close_rounds_in_memory()};
  const auto names_this_rank = [this](const RankRange& range) { return range.first <= rank_ && rank_ <= range.last; };
  const auto n_times = std::count_if(entry.targets.begin(), entry.targets.end(), names_this_rank);
  if (n_times == 0) return Action(std::move(action));
  PersistentOp* const op = names_.find(entry.name);
  if (op == nullptr || !op->is_reported() || PendingCalls::count(*op) < static_cast<std::size_t>(n_times)) {
    return misfit("fails '" + entry.name + "'", "has not reported");
  }
  for (auto i = n_times; i > 0; --i) action.tickets.push_back(calls_.take(*op));
  DirectRounds::close(*op);
  PersistentOps::remove_if_unused(*op);
  return Action(std::move(action));
}

std::vector<DirectRound> Participant::close_rounds_in_memory() {
  std::vector<DirectRound> to_close;
  ops_.for_each(lane_, [&](PersistentOp& op) {
    if (DirectRounds::is_open(op, Direct::kInMemory)) DirectRounds::close(op, to_close);
  });
  return to_close;
}

Result<Participant::Action> Participant::end_join(const JoinedEntry& entry) {
  if (!calls_.has_joined()) return misfit("says that all ranks have joined", "has not");
  return Action(Joined{calls_.end_join(), entry.last});
}

Result<Participant::Action> Participant::plan(const PlanEntry& entry) {
  Planned action{held_.release(), {entry.plan, {}}};
  if (const auto cache_id = held_.plan(entry)) {
    return misfit("plans a group with " + text_of(*cache_id), "does not know, or has in two groups");
  }
  return Action(std::move(action));
}

Result<Participant::Action> Participant::cancel(const CancelEntry& entry) {
  PersistentOp* const op = names_.find(entry.cache_id);
  if (op == nullptr) return misfit("cancels " + text_of(entry.cache_id), "does not know");
  return Action(Cancelled{DirectRounds::cancel(*op, entry.round)});
}

Result<Participant::Action> Participant::forget(const ForgetEntry& entry) {
  Forgotten action;
  for (const std::uint32_t cache_id : entry.cache_ids) {
    PersistentOp* const op = names_.find(cache_id);
    if (op == nullptr) return misfit("forgets " + text_of(cache_id), "does not know");
    if (op->is_idle()) {
      DirectRounds::close(*op, action.to_close);
      KnownNames::forget(*op);
    } else {
      action.answer.kept.push_back(cache_id);
    }
  }
  return Action(std::move(action));
}

}  // namespace ciranda
