#include "agree/participant.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

constexpr std::uint32_t kNoGroup = 0xffffffff;

}  // namespace

Message Participant::submit(PersistentOp& op, const Request& request, Ticket ticket) {
  const bool is_duplicate = !op.pending_.empty();
  ++n_pending_;
  const bool is_numbered = !request.is_cacheable && is_unnamed(request.name);
  if (is_numbered) ++n_unnamed_reported_;
  op.pending_.push_back({ticket, nullptr, request.is_deferrable, is_numbered});
  close(op);
  if (is_duplicate) return DuplicateMessage{op.name()};
  const bool is_same_priority = std::exchange(op.priority_, request.priority) == request.priority;
  if (is_same_priority && op.cache_id_ != kNoCacheId && op.known_ == request.signature) {
    const std::uint32_t group = op.cache_id_ < group_of_id_.size() ? group_of_id_[op.cache_id_] : kNoGroup;
    if (group != kNoGroup && request.is_deferrable) return hold(op, group);
    op.become(State::kReported);
    return ReadyMessage{{{op.cache_id_, request.is_deferrable}}};
  }
  op.become(State::kReported);
  op.pending_.back().in_full = std::make_unique<Signature>(request.signature);
  return RequestMessage{op.name(), request.signature, request.is_cacheable, request.is_deferrable, request.priority};
}

// --- direct rounds

Participant::DirectRound Participant::next_round(PersistentOp& op) {
  return {&op, op.place_.value_or(RoundPlace{}), op.next_round_, op.first_dims_.get()};
}

std::optional<Participant::DirectRound> Participant::come(Direct by, PersistentOp& op, const Request& request,
                                                          Ticket ticket) {
  if (op.direct_ != by || !op.pending_.empty() || op.known_ != request.signature) return std::nullopt;
  // By messages others go on without a rank that joins: it has not come to their next rounds.
  const bool is_in_memory = by == Direct::kInMemory;
  const bool may_come = is_in_memory ? fits(request, *op.place_) : op.n_joins_ == n_joins_ && !request.is_deferrable;
  if (!may_come) return std::nullopt;
  op.become(is_in_memory ? State::kInMemory : State::kByMessages);
  op.pending_.push_back({ticket, nullptr});
  ++n_pending_;
  return next_round(op);
}

std::optional<Participant::DirectRound> Participant::round_for(PersistentOp& op, const Call& call) const {
  if (op.direct_ != Direct::kInMemory || !op.pending_.empty() || !is_of(*op.known_, call)) return std::nullopt;
  return next_round(op);
}

Participant::Ready Participant::done(PersistentOp& op) {
  ++op.next_round_;
  return take(op);
}

ReadyMessage Participant::missed(PersistentOp& op) {
  op.become(State::kReported);
  close(op);
  return ReadyMessage{{{op.cache_id_, false}}};
}

std::optional<Participant::DirectRound> Participant::avoid(PersistentOp& op) {
  if (op.direct_ != Direct::kInMemory) return std::nullopt;
  close(op);
  return next_round(op);
}

// All members do so at the same place of the log, with the same signature.
bool Participant::take_place(PersistentOp& op) {
  const std::optional<Room> room = room_for(*op.known_, op.first_dims_.get(), places_.has_buffers());
  if (!room) return false;
  if (!op.place_ || op.place_->n_bytes < room->n_bytes) op.place_ = places_.take(*room);
  if (!op.place_) return false;
  op.place_->is_in_buffer = room->is_in_buffer;  // all have done with the one before
  op.place_->n_exact_bytes = room->n_exact_bytes;
  return true;
}

// The round before may have been closed: all members count it, whatever each has come to.
void Participant::open(PersistentOp& op, Direct direct) {
  close(op);
  if (direct == Direct::kNot) return;
  ++op.next_round_;
  op.direct_ = direct;
  op.n_joins_ = n_joins_;
}

void Participant::close(PersistentOp& op) { op.direct_ = Direct::kNot; }

bool Participant::come_late(PersistentOp& op, Ticket ticket) {
  if (op.state() != State::kByMessages) return false;
  op.pending_.push_back({ticket, nullptr});
  ++n_pending_;
  close(op);
  ++op.n_late_;
  return true;
}

void Participant::end_round(PersistentOp& op) {
  op.become(op.pending_.empty() ? State::kIdle : State::kReported);
  late_.insert(late_.end(), std::exchange(op.n_late_, 0), DuplicateMessage{op.name()});
}

Result<Participant::Action> Participant::cancel(const CancelEntry& entry) {
  if (entry.cache_id >= by_cache_id_.size() || by_cache_id_[entry.cache_id] == nullptr) {
    return Status::internal("the log cancels cache id " + std::to_string(entry.cache_id) + ", which rank " +
                            std::to_string(rank_) + " does not know");
  }
  PersistentOp& op = at(entry.cache_id);
  const bool has_come =
      entry.round < op.next_round_ || (entry.round == op.next_round_ && op.state() == State::kByMessages);
  if (has_come) return Action(Cancelled{});
  close(op);  // whether or not this rank has all inputs to the round before
  return Action(Cancelled{NoInputMessage{entry.cache_id, entry.round}});
}

// --- groups

Message Participant::hold(PersistentOp& op, std::uint32_t number) {
  Group& group = groups_[number];
  op.become(State::kHeld);
  ++n_held_;
  if (++group.n_held < group.cache_ids.size()) return ReadyMessage{};
  n_held_ -= std::exchange(group.n_held, 0);
  for (const std::uint32_t cache_id : group.cache_ids) at(cache_id).become(State::kReported);
  return GroupsMessage{plan_, {number}};
}

ReadyMessage Participant::release() {
  ReadyMessage released;
  for (std::size_t number = 0; n_held_ > 0 && number < groups_.size(); ++number) {
    Group& group = groups_[number];
    if (group.n_held == 0) continue;
    n_held_ -= std::exchange(group.n_held, 0);
    for (const std::uint32_t cache_id : group.cache_ids) {
      if (at(cache_id).state() != State::kHeld) continue;
      at(cache_id).become(State::kReported);
      released.items.push_back({cache_id, true});
    }
  }
  return released;
}

Result<Participant::Action> Participant::plan(const PlanEntry& entry) {
  Planned action{release(), {entry.plan, {}}};
  plan_ = entry.plan;
  groups_.clear();
  group_of_id_.assign(by_cache_id_.size(), kNoGroup);
  for (const std::vector<std::uint32_t>& cache_ids : entry.groups) {
    for (const std::uint32_t cache_id : cache_ids) {
      if (cache_id >= by_cache_id_.size() || by_cache_id_[cache_id] == nullptr || group_of_id_[cache_id] != kNoGroup) {
        return Status::internal("the log plans a group with cache id " + std::to_string(cache_id) + ", which rank " +
                                std::to_string(rank_) + " does not know, or twice");
      }
      group_of_id_[cache_id] = static_cast<std::uint32_t>(groups_.size());
    }
    groups_.push_back({cache_ids, 0});
  }
  return Action(std::move(action));
}

Result<Participant::Action> Participant::execute(const ExecuteGroupsEntry& entry) {
  Execute action;
  action.check = entry.check;
  for (const std::uint32_t number : entry.groups) {
    if (entry.plan != plan_ || number >= groups_.size()) {
      return Status::internal("the log executes group " + std::to_string(number) + " of plan " +
                              std::to_string(entry.plan) + ", which rank " + std::to_string(rank_) + " does not know");
    }
    for (const std::uint32_t cache_id : groups_[number].cache_ids) {
      PersistentOp& op = at(cache_id);
      if (op.state() != State::kReported) {
        return Status::internal("the log executes cache id " + std::to_string(cache_id) +
                                " with its group, which rank " + std::to_string(rank_) + " has not reported");
      }
      action.requests.push_back(take(op));
    }
  }
  return Action(std::move(action));
}

// --- other reports

Message Participant::submit_duplicate(PersistentOp& op, Ticket ticket) {
  ++n_pending_;
  op.pending_.push_back({ticket, nullptr});
  if (op.state() != State::kHeld) op.become(State::kReported);
  close(op);
  return DuplicateMessage{op.name()};
}

Message Participant::join(Ticket ticket) {
  join_ = ticket;
  ++n_joins_;
  ++n_pending_;
  return JoinMessage{n_joins_};
}

Result<Participant::Action> Participant::apply(const LogEntry& entry) {
  if (const auto* to_execute = std::get_if<ExecuteEntry>(&entry)) return execute(*to_execute);
  if (const auto* joined = std::get_if<JoinedEntry>(&entry)) return end_join(*joined);
  if (std::holds_alternative<EndEntry>(entry)) return Action(End{});
  if (const auto* planned = std::get_if<PlanEntry>(&entry)) return plan(*planned);
  if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) return execute(*groups);
  if (const auto* cancel = std::get_if<CancelEntry>(&entry)) return this->cancel(*cancel);
  if (const auto* to_forget = std::get_if<ForgetEntry>(&entry)) return forget(*to_forget);
  return fail(std::get<FailEntry>(entry));
}

Result<Participant::Action> Participant::end_join(const JoinedEntry& entry) {
  if (join_ == kNoTicket) {
    return Status::internal("the log says that all ranks have joined, which rank " + std::to_string(rank_) +
                            " has not");
  }
  --n_pending_;
  return Action(Joined{std::exchange(join_, kNoTicket), entry.last});
}

Result<Participant::Action> Participant::execute(const ExecuteEntry& entry) {
  Execute action;
  action.check = entry.check;
  action.inputs = entry.inputs;
  action.requests.reserve(entry.items.size());
  for (const ExecuteItem& item : entry.items) {
    Result<Ready> ready = execute(item, action.to_close);
    if (!ready.ok()) return ready.status();
    action.requests.push_back(std::move(ready).value());
  }
  return Action(std::move(action));
}

Result<Participant::Ready> Participant::execute(const ExecuteItem& item, std::vector<DirectRound>& to_close) {
  const bool is_id_possible =
      item.cache_id == kNoCacheId || item.cache_id <= by_cache_id_.size();  // cache ids come in order
  const bool is_absent = std::find(item.absent.begin(), item.absent.end(), rank_) != item.absent.end();
  if (is_absent && is_id_possible && join_ != kNoTicket && item.is_defined_here) return stand_in(item);
  PersistentOp* op = is_id_possible ? find(item) : nullptr;
  const bool is_reported = !is_absent && op != nullptr && op->is_told();
  if (is_reported && item.is_defined_here) learn(item, *op);
  if (!is_reported || !op->known_) {
    return Status::internal(
        "the log executes " +
        (item.is_defined_here ? "'" + item.name + "'" : "cache id " + std::to_string(item.cache_id)) + ", which rank " +
        std::to_string(rank_) + " has not reported");
  }
  Ready ready = take(*op);
  if (!item.absent.empty()) ready.absence = std::make_shared<Absence>(Absence{item.name, item.signature, item.absent});
  const bool is_in_memory = item.direct == Direct::kInMemory;
  if (item.cache_id == kNoCacheId) {
    if (is_in_memory) open_unnamed(*op->known_, to_close);
  } else if (!is_in_memory || take_place(*op)) {
    open(*op, item.direct);
  }
  if (!op->pending_.empty() || (join_ != kNoTicket && !is_in_memory)) {
    if (const auto round = avoid(*op)) to_close.push_back(*round);
    close(*op);
  }
  if (item.is_defined_here) ops_->remove_if_unused(*op);
  return ready;
}

Participant::Ready Participant::take(PersistentOp& op) {
  Ready ready{op.pending_.front().ticket, op.first_dims_, nullptr};
  note_over(op.pending_.front());
  op.pending_.erase(op.pending_.begin());
  end_round(op);
  --n_pending_;
  return ready;
}

// This rank has joined: it learns the cache id, but the next time that it uses the name it must say in full what it
// means.
Participant::Ready Participant::stand_in(const ExecuteItem& item) {
  Ready ready;
  ready.absence = std::make_shared<Absence>(Absence{item.name, item.signature, item.absent});
  if (!item.first_dims.empty()) ready.first_dims = std::make_shared<const FirstDims>(item.first_dims);
  if (item.cache_id == kNoCacheId) return ready;
  PersistentOp& op = ops_->find_or_make(lane_, item.name);
  op.known_.reset();
  close(op);
  take_cache_id(item.cache_id, op);
  return ready;
}

PersistentOp* Participant::find(const ExecuteItem& item) const {
  if (item.is_defined_here) return ops_->find(lane_, item.name);
  return item.cache_id < by_cache_id_.size() ? by_cache_id_[item.cache_id] : nullptr;
}

void Participant::learn(const ExecuteItem& item, PersistentOp& op) {
  auto& reported = op.pending_.front().in_full;
  if (reported) op.known_ = std::move(*reported);
  op.first_dims_ = item.first_dims.empty() ? nullptr : std::make_shared<const FirstDims>(item.first_dims);
  if (item.cache_id != kNoCacheId) take_cache_id(item.cache_id, op);
}

void Participant::take_cache_id(std::uint32_t cache_id, PersistentOp& op) {
  op.cache_id_ = cache_id;
  if (cache_id >= by_cache_id_.size()) by_cache_id_.resize(std::size_t{cache_id} + 1, nullptr);
  PersistentOp* before = std::exchange(by_cache_id_[cache_id], &op);
  if (before != nullptr && before != &op) lose_cache_id(*before, op);
}

// All ranks have forgotten the name, though this one may have called it again since, in full. What they count alike
// goes on for the name that has the cache id now: what was said for another round is then not taken for one of these.
void Participant::lose_cache_id(PersistentOp& op, PersistentOp& to) {
  op.cache_id_ = kNoCacheId;
  op.known_.reset();
  close(op);
  to.next_round_ = std::exchange(op.next_round_, 0);
  to.place_ = std::exchange(op.place_, std::nullopt);
  ops_->remove_if_unused(op);
}

Result<Participant::Action> Participant::forget(const ForgetEntry& entry) {
  Forgotten action;
  for (const std::uint32_t cache_id : entry.cache_ids) {
    if (cache_id >= by_cache_id_.size() || by_cache_id_[cache_id] == nullptr) {
      return Status::internal("the log forgets cache id " + std::to_string(cache_id) + ", which rank " +
                              std::to_string(rank_) + " does not know");
    }
    PersistentOp& op = at(cache_id);
    if (!op.pending_.empty()) {
      action.answer.kept.push_back(cache_id);
      continue;
    }
    if (const auto round = avoid(op)) action.to_close.push_back(*round);
    close(op);
    op.known_.reset();
  }
  return Action(std::move(action));
}

Result<Participant::Action> Participant::fail(const FailEntry& entry) {
  const auto names_this_rank = [this](const RankRange& range) { return range.first <= rank_ && rank_ <= range.last; };
  const auto n_times = std::count_if(entry.targets.begin(), entry.targets.end(), names_this_rank);
  std::vector<Ticket> tickets;
  if (n_times > 0) {
    PersistentOp* const op = ops_->find(lane_, entry.name);
    if (op == nullptr || !op->is_told() || op->pending_.size() < static_cast<std::size_t>(n_times)) {
      return Status::internal("the log fails '" + entry.name + "', which rank " + std::to_string(rank_) +
                              " has not reported");
    }
    auto& pending = op->pending_;
    for (auto call = pending.begin(); call != pending.begin() + n_times; ++call) {
      note_over(*call);
      tickets.push_back(call->ticket);
    }
    pending.erase(pending.begin(), pending.begin() + n_times);
    end_round(*op);
    close(*op);
    n_pending_ -= tickets.size();
    ops_->remove_if_unused(*op);
  }
  return Action(Fail{std::move(tickets), Status(entry.kind, entry.text)});
}

std::optional<std::string> Participant::sweep(bool counts_deferrable) {
  std::optional<std::string> never_answered;
  ops_->for_each(lane_, [&](PersistentOp& op) {
    if (!op.is_told()) return;  // not reported yet, and it will be before long
    for (PersistentOp::Pending& pending : op.pending_) {
      if (pending.is_deferrable && !counts_deferrable) continue;
      if (++pending.n_sweeps >= kMostSweeps) never_answered = op.name();
    }
  });
  return never_answered;
}

}  // namespace ciranda
