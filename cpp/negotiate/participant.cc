#include "negotiate/participant.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

constexpr std::uint32_t kNoGroup = 0xffffffff;

}  // namespace

Message Participant::submit(const Request& request, Ticket ticket) {
  Name& name = name_for(request.name);
  const bool is_duplicate = !name.pending.empty();
  ++n_pending_;
  const bool is_unnamed = !request.is_cacheable && ciranda::is_unnamed(request.name);
  if (is_unnamed) ++n_unnamed_reported_;
  name.pending.push_back({ticket, nullptr, request.is_deferrable, 0, is_unnamed});
  close(name);
  if (is_duplicate) return DuplicateMessage{request.name};
  const bool is_same_priority = std::exchange(name.priority, request.priority) == request.priority;
  if (is_same_priority && name.cache_id != kNoCacheId && name.is_known && name.known == request.signature) {
    const std::uint32_t group = name.cache_id < group_of_id_.size() ? group_of_id_[name.cache_id] : kNoGroup;
    if (group != kNoGroup && request.is_deferrable) return hold(name, group);
    return ReadyMessage{{{name.cache_id, request.is_deferrable}}};
  }
  name.pending.back().in_full = std::make_unique<Signature>(request.signature);
  return RequestMessage{request.name, request.signature, request.is_cacheable, request.is_deferrable, request.priority};
}

// --- direct rounds

Participant::DirectRound Participant::next_round(const Name& name) {
  return {name.cache_id, name.place.value_or(RoundPlace{}), name.next_round, name.first_dims.get()};
}

std::optional<Participant::DirectRound> Participant::come(Direct by, const Request& request, Ticket ticket) {
  if (n_open_ == 0) return std::nullopt;
  const auto found = names_.find(request.name);
  if (found == names_.end()) return std::nullopt;
  Name& name = *found->second;
  if (name.direct != by || !name.pending.empty() || !(name.known == request.signature)) return std::nullopt;
  // By messages others go on without a rank that joins: it has not come to their next rounds.
  const bool is_in_memory = by == Direct::kInMemory;
  const bool may_come = is_in_memory ? fits(request, *name.place) : name.n_joins == n_joins_ && !request.is_deferrable;
  if (!may_come) return std::nullopt;
  name.way = is_in_memory ? Way::kInMemory : Way::kByMessages;
  name.pending.push_back({ticket, nullptr});
  ++n_pending_;
  return next_round(name);
}

std::optional<Participant::DirectRound> Participant::round_for(const Call& call) const {
  if (n_open_ == 0) return std::nullopt;
  const auto found = names_.find(call.name);
  if (found == names_.end()) return std::nullopt;
  const Name& name = *found->second;
  if (name.direct != Direct::kInMemory || !name.pending.empty() || !is_of(name.known, call)) return std::nullopt;
  return next_round(name);
}

Participant::Ready Participant::done(std::uint32_t cache_id) {
  Name& name = at(cache_id);
  ++name.next_round;
  return take(name);
}

ReadyMessage Participant::missed(std::uint32_t cache_id) {
  Name& name = *by_cache_id_[cache_id];
  name.way = Way::kReported;
  close(name);
  return ReadyMessage{{{cache_id, false}}};
}

std::optional<Participant::DirectRound> Participant::avoid(const std::string& text) {
  if (n_open_ == 0) return std::nullopt;
  const auto found = names_.find(text);
  return found == names_.end() ? std::nullopt : avoid(*found->second);
}

std::optional<Participant::DirectRound> Participant::avoid(Name& name) {
  if (name.direct != Direct::kInMemory) return std::nullopt;
  close(name);
  return next_round(name);
}

// All members do so at the same place of the log, with the same signature.
bool Participant::take_place(Name& name) {
  const bool is_in_buffer = places_.has_buffers() && is_for_buffer(name.known, name.first_dims.get());
  const std::optional<std::size_t> n_bytes =
      is_in_buffer ? std::optional<std::size_t>(0) : round_bytes(name.known, name.first_dims.get());
  if (!n_bytes) return false;
  if (!name.place || name.place->n_bytes < *n_bytes) name.place = places_.take(*n_bytes);
  if (!name.place) return false;
  name.place->is_in_buffer = is_in_buffer;
  name.place->n_exact_bytes =
      exact_round_bytes(name.known, name.first_dims.get());  // all have done with the one before
  return true;
}

// The round before may have been closed: all members count it, whatever each has come to.
void Participant::open(Name& name, Direct direct) {
  close(name);
  if (direct == Direct::kNot) return;
  ++name.next_round;
  name.direct = direct;
  name.n_joins = n_joins_;
  ++n_open_;
}

void Participant::close(Name& name) {
  if (std::exchange(name.direct, Direct::kNot) != Direct::kNot) --n_open_;
}

bool Participant::come_late(const std::string& text, Ticket ticket) {
  const auto found = names_.find(text);
  if (found == names_.end() || found->second->way != Way::kByMessages) return false;
  Name& name = *found->second;
  name.pending.push_back({ticket, nullptr});
  ++n_pending_;
  close(name);
  name.late.push_back({text});
  return true;
}

void Participant::end_round(Name& name) {
  name.way = Way::kReported;
  for (DuplicateMessage& late : std::exchange(name.late, {})) late_.push_back(std::move(late));
}

Result<Participant::Action> Participant::cancel(const CancelEntry& entry) {
  if (entry.cache_id >= by_cache_id_.size() || by_cache_id_[entry.cache_id] == nullptr) {
    return Status::internal("the log cancels cache id " + std::to_string(entry.cache_id) + ", which rank " +
                            std::to_string(rank_) + " does not know");
  }
  Name& name = *by_cache_id_[entry.cache_id];
  const bool has_come =
      entry.round < name.next_round || (entry.round == name.next_round && name.way == Way::kByMessages);
  if (has_come) return Action(Cancelled{});
  close(name);  // whether or not this rank has all inputs to the round before
  return Action(Cancelled{NoInputMessage{entry.cache_id, entry.round}});
}

// --- groups

Message Participant::hold(Name& name, std::uint32_t number) {
  Group& group = groups_[number];
  name.way = Way::kHeld;
  ++n_held_;
  if (++group.n_held < group.cache_ids.size()) return ReadyMessage{};
  n_held_ -= std::exchange(group.n_held, 0);
  for (const std::uint32_t cache_id : group.cache_ids) by_cache_id_[cache_id]->way = Way::kReported;
  return GroupsMessage{plan_, {number}};
}

ReadyMessage Participant::release() {
  ReadyMessage released;
  for (std::size_t number = 0; n_held_ > 0 && number < groups_.size(); ++number) {
    Group& group = groups_[number];
    if (group.n_held == 0) continue;
    n_held_ -= std::exchange(group.n_held, 0);
    for (const std::uint32_t cache_id : group.cache_ids) {
      if (by_cache_id_[cache_id]->way != Way::kHeld) continue;
      by_cache_id_[cache_id]->way = Way::kReported;
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
      Name& name = *by_cache_id_[cache_id];
      if (name.pending.empty() || name.way != Way::kReported) {
        return Status::internal("the log executes cache id " + std::to_string(cache_id) +
                                " with its group, which rank " + std::to_string(rank_) + " has not reported");
      }
      action.requests.push_back(take(name));
    }
  }
  return Action(std::move(action));
}

// --- other reports

Message Participant::submit_duplicate(const std::string& name, Ticket ticket) {
  Name& duplicate = name_for(name);
  ++n_pending_;
  duplicate.pending.push_back({ticket, nullptr});
  close(duplicate);
  return DuplicateMessage{name};
}

Participant::Name& Participant::name_for(const std::string& text) {
  const auto found = names_.try_emplace(text).first;
  if (!found->second) found->second = std::make_unique<Name>();
  found->second->text = &found->first;
  return *found->second;
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
  Name* name = is_id_possible ? find(item) : nullptr;
  if (is_absent || name == nullptr || name->pending.empty() || !name->is_told()) {
    return Status::internal(
        "the log executes " +
        (item.is_defined_here ? "'" + item.name + "'" : "cache id " + std::to_string(item.cache_id)) + ", which rank " +
        std::to_string(rank_) + " has not reported");
  }
  if (item.is_defined_here) learn(item, *name);
  Ready ready = take(*name);
  if (!item.absent.empty()) ready.absence = std::make_shared<Absence>(Absence{item.name, item.signature, item.absent});
  const bool is_in_memory = item.direct == Direct::kInMemory;
  if (item.cache_id == kNoCacheId) {
    if (is_in_memory) open_unnamed(name->known, to_close);
  } else if (!is_in_memory || take_place(*name)) {
    open(*name, item.direct);
  }
  if (!name->pending.empty() || (join_ != kNoTicket && !is_in_memory)) {
    if (const auto round = avoid(*name)) to_close.push_back(*round);
    close(*name);
  }
  if (item.is_defined_here) forget_if_unused(item.name);
  return ready;
}

Participant::Ready Participant::take(Name& name) {
  Ready ready{name.pending.front().ticket, name.first_dims, nullptr};
  note_over(name.pending.front());
  name.pending.erase(name.pending.begin());
  end_round(name);
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
  Name& name = name_for(item.name);
  name.is_known = false;
  close(name);
  take_cache_id(item.cache_id, name);
  return ready;
}

Participant::Name* Participant::find(const ExecuteItem& item) {
  if (!item.is_defined_here) return item.cache_id < by_cache_id_.size() ? by_cache_id_[item.cache_id] : nullptr;
  const auto found = names_.find(item.name);
  return found == names_.end() ? nullptr : found->second.get();
}

void Participant::learn(const ExecuteItem& item, Name& name) {
  auto& reported = name.pending.front().in_full;
  if (reported) name.known = std::move(*reported);
  name.is_known = true;
  name.first_dims = item.first_dims.empty() ? nullptr : std::make_shared<const FirstDims>(item.first_dims);
  if (item.cache_id != kNoCacheId) take_cache_id(item.cache_id, name);
}

void Participant::take_cache_id(std::uint32_t cache_id, Name& name) {
  name.cache_id = cache_id;
  if (cache_id >= by_cache_id_.size()) by_cache_id_.resize(std::size_t{cache_id} + 1, nullptr);
  Name* before = std::exchange(by_cache_id_[cache_id], &name);
  if (before != nullptr && before != &name) lose_cache_id(*before, name);
}

// All ranks have forgotten the name, though this one may have called it again since, in full. What they count alike
// goes on for the name that has the cache id now: what was said for another round is then not taken for one of these.
void Participant::lose_cache_id(Name& name, Name& to) {
  name.cache_id = kNoCacheId;
  name.is_known = false;
  close(name);
  to.next_round = std::exchange(name.next_round, 0);
  to.place = std::exchange(name.place, std::nullopt);
  forget_if_unused(*name.text);
}

Result<Participant::Action> Participant::forget(const ForgetEntry& entry) {
  Forgotten action;
  for (const std::uint32_t cache_id : entry.cache_ids) {
    if (cache_id >= by_cache_id_.size() || by_cache_id_[cache_id] == nullptr) {
      return Status::internal("the log forgets cache id " + std::to_string(cache_id) + ", which rank " +
                              std::to_string(rank_) + " does not know");
    }
    Name& name = *by_cache_id_[cache_id];
    if (!name.pending.empty()) {
      action.answer.kept.push_back(cache_id);
      continue;
    }
    if (const auto round = avoid(name)) action.to_close.push_back(*round);
    close(name);
    name.is_known = false;
  }
  return Action(std::move(action));
}

Result<Participant::Action> Participant::fail(const FailEntry& entry) {
  const auto names_this_rank = [this](const RankRange& range) { return range.first <= rank_ && rank_ <= range.last; };
  const auto n_times = std::count_if(entry.targets.begin(), entry.targets.end(), names_this_rank);
  std::vector<Ticket> tickets;
  if (n_times > 0) {
    const auto found = names_.find(entry.name);
    if (found == names_.end() || found->second->pending.size() < static_cast<std::size_t>(n_times)) {
      return Status::internal("the log fails '" + entry.name + "', which rank " + std::to_string(rank_) +
                              " has not reported");
    }
    end_round(*found->second);
    close(*found->second);
    auto& pending = found->second->pending;
    for (auto call = pending.begin(); call != pending.begin() + n_times; ++call) {
      note_over(*call);
      tickets.push_back(call->ticket);
    }
    pending.erase(pending.begin(), pending.begin() + n_times);
    n_pending_ -= tickets.size();
    forget_if_unused(entry.name);
  }
  return Action(Fail{std::move(tickets), Status(entry.kind, entry.text)});
}

std::optional<std::string> Participant::sweep(bool counts_deferrable) {
  for (auto& [text, name] : names_) {
    if (!name->is_told()) continue;  // not reported yet, and it will be before long
    for (Name::Pending& pending : name->pending) {
      if (pending.is_deferrable && !counts_deferrable) continue;
      if (++pending.n_sweeps >= kMostSweeps) return text;
    }
  }
  return std::nullopt;
}

void Participant::forget_if_unused(const std::string& text) {
  const auto found = names_.find(text);
  if (found != names_.end() && found->second->cache_id == kNoCacheId && found->second->pending.empty())
    names_.erase(found);
}

}  // namespace ciranda
