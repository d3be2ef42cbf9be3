#include "negotiate/participant.hpp"

#include <algorithm>

namespace ciranda {

Message Participant::submit(const Request& request, Ticket ticket) {
  std::unique_ptr<Name>& entry = names_[request.name];
  if (!entry) entry = std::make_unique<Name>();
  Name& name = *entry;
  const bool is_duplicate = !name.pending.empty();
  ++n_pending_;
  name.pending.push_back({ticket, nullptr});
  if (is_duplicate) return DuplicateMessage{request.name};
  if (name.slot != kNoSlot && name.known == request.signature) {
    return ReadyMessage{{{name.slot, request.is_deferrable}}};
  }
  name.pending.back().in_full = std::make_unique<Signature>(request.signature);
  return RequestMessage{request.name, request.signature, request.is_cacheable, request.is_deferrable};
}

Message Participant::submit_duplicate(const std::string& name, Ticket ticket) {
  std::unique_ptr<Name>& entry = names_[name];
  if (!entry) entry = std::make_unique<Name>();
  ++n_pending_;
  entry->pending.push_back({ticket, nullptr});
  return DuplicateMessage{name};
}

Result<Participant::Action> Participant::apply(const LogEntry& entry) {
  if (const auto* to_execute = std::get_if<ExecuteEntry>(&entry)) return execute(*to_execute);
  return fail(std::get<FailEntry>(entry));
}

Result<Participant::Action> Participant::execute(const ExecuteEntry& entry) {
  Execute action;
  action.requests.reserve(entry.items.size());
  for (const ExecuteItem& item : entry.items) {
    Name* name = item.slot == kNoSlot || item.slot <= slots_.size() ? find(item) : nullptr;  // slots come in order
    if (name == nullptr || name->pending.empty()) {
      return Status::internal("the log executes " +
                              (item.is_defined_here ? "'" + item.name + "'" : "slot " + std::to_string(item.slot)) +
                              ", which rank " + std::to_string(rank_) + " has not announced");
    }
    if (item.is_defined_here) learn(item, *name);
    action.requests.push_back({name->pending.front().ticket, name->first_dims});
    name->pending.erase(name->pending.begin());
    --n_pending_;
    if (item.is_defined_here) forget_if_unused(item.name);
  }
  return Action(std::move(action));
}

Participant::Name* Participant::find(const ExecuteItem& item) {
  if (!item.is_defined_here) return item.slot < slots_.size() ? slots_[item.slot] : nullptr;
  const auto found = names_.find(item.name);
  return found == names_.end() ? nullptr : found->second.get();
}

void Participant::learn(const ExecuteItem& item, Name& name) {
  auto& announced = name.pending.front().in_full;
  if (announced) name.known = std::move(*announced);
  name.first_dims = item.first_dims.empty() ? nullptr : std::make_shared<const FirstDims>(item.first_dims);
  if (item.slot == kNoSlot) return;
  name.slot = item.slot;
  if (item.slot >= slots_.size()) slots_.resize(std::size_t{item.slot} + 1, nullptr);
  slots_[item.slot] = &name;
}

Result<Participant::Action> Participant::fail(const FailEntry& entry) {
  Fail action;
  action.status = Status(entry.kind, entry.text);
  const auto n_times = std::count(entry.targets.begin(), entry.targets.end(), rank_);
  if (n_times == 0) return Action(std::move(action));
  const auto found = names_.find(entry.name);
  if (found == names_.end() || found->second->pending.size() < static_cast<std::size_t>(n_times)) {
    return Status::internal("the log fails '" + entry.name + "', which rank " + std::to_string(rank_) +
                            " has not announced");
  }
  auto& pending = found->second->pending;
  for (auto i = n_times; i > 0; --i) {
    action.tickets.push_back(pending.front().ticket);
    pending.erase(pending.begin());
    --n_pending_;
  }
  forget_if_unused(entry.name);
  return Action(std::move(action));
}

void Participant::forget_if_unused(const std::string& text) {
  const auto found = names_.find(text);
  if (found != names_.end() && found->second->slot == kNoSlot && found->second->pending.empty()) names_.erase(found);
}

}  // namespace ciranda
