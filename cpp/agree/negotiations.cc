#include "agree/negotiations.hpp"

#include <algorithm>
#include <memory>

namespace ciranda {

NameState& Negotiations::name_for(const std::string& name, bool is_cacheable) {
  std::unique_ptr<NameState>& entry = names_[name];
  if (!entry) entry = std::make_unique<NameState>(name, is_cacheable, members_.size());
  return *entry;
}

void Negotiations::forget_if_unused(NameState& name) {
  if (name.cache_id == kNoCacheId && !name.negotiation.is_open() && name.deferred_errors.empty())
    names_.erase(std::string(name.name));
}

// --- reports

Status Negotiations::report(NameState& name, Reported reported) {
  const int rank = reported.rank;
  if (members_.has_joined(rank) && !reported.is_duplicate) {
    return Status::internal(members_.rank_text(rank) + " reported '" + name.name + "' after it had joined");
  }
  if (name.negotiation.has_arrived_directly(rank)) {
    members_.note_report(rank, name.name, reported.when);
    name.later.push_back(std::move(reported));
    return Status::ok_status();
  }
  return handle(name, std::move(reported));
}

Status Negotiations::handle(NameState& name, Reported reported) {
  const int rank = reported.rank;
  Negotiation& negotiation = name.negotiation;
  if (!reported.direct_round) abandon_direct_round(negotiation);
  if (failures_.answer(name, rank)) {
    forget_if_unused(name);
    return Status::ok_status();
  }
  const bool was_pending = negotiation.has_arrived(rank);
  if (was_pending && !reported.is_duplicate) {
    return Status::internal(members_.rank_text(rank) + " reported '" + name.name + "' before it was answered");
  }
  arrive(name, reported);
  if (reported.is_duplicate) {
    fail(name, ErrorKind::kInvalidArgument,
         "Duplicate name '" + name.name + "': " + members_.text(rank) +
             " submitted it again while its first use was still pending. Wait for the first one, or give each its own "
             "name.",
         DuplicateCall{rank, was_pending});
    return Status::ok_status();
  }
  if (reported.direct_round && negotiation.n_arrived == 1) {
    if (!members_.has_any_joined()) negotiation.stage = Negotiation::Stage::kDirect;
    negotiation.direct_round = *reported.direct_round;
  }
  if (reported.signature) {
    negotiation.in_full.resize(static_cast<std::size_t>(members_.size()));
    negotiation.in_full[static_cast<std::size_t>(rank)] = std::move(*reported.signature);
    negotiation.homes.resize(static_cast<std::size_t>(members_.size()));
    negotiation.homes[static_cast<std::size_t>(rank)] = reported.home;
  }
  if (negotiation.is_direct()) return negotiation.has_all() ? end_direct_round(name) : Status::ok_status();
  if (std::string why = name.disagreement(rank, members_); !why.empty()) {
    fail(name, ErrorKind::kMismatch,
         "Ranks disagree about '" + name.name + "': " + why + ". Every rank must make the same call for a name.");
  } else if (negotiation.is_complete(members_)) {
    members_.note_last(rank, negotiation.opened, reported.when);
    complete(name);
  }
  return Status::ok_status();
}

void Negotiations::arrive(NameState& name, const Reported& reported) {
  members_.note_report(reported.rank, name.name, reported.when);
  if (!reported.is_duplicate) {
    const Signature& signature = reported.signature ? *reported.signature : name.agreed;
    members_.note_arrival(reported.rank, name.name, signature.collective);
  }
  Negotiation& negotiation = name.negotiation;
  if (!negotiation.is_open()) open(negotiation, reported.when);
  const bool was_pressing = negotiation.is_pressing();
  negotiation.arrive(reported.rank, reported.signature ? Arrival::kInFull : Arrival::kUnchanged);
  ++(reported.is_deferrable ? negotiation.n_deferrable : negotiation.n_urgent);
  if (!was_pressing && negotiation.is_pressing()) ++n_pressing_;
}

void Negotiations::join(int member) {
  members_.join(member);
  std::vector<NameState*> dropped;
  std::vector<NameState*> completed;
  for (auto& [key, name] : names_) {
    if (failures_.drop(*name, member)) dropped.push_back(name.get());
    if (!name->negotiation.has_arrived(member)) abandon_direct_round(name->negotiation);
    if (name->negotiation.is_waiting() && name->negotiation.is_complete(members_)) completed.push_back(name.get());
  }
  for (NameState* name : dropped) forget_if_unused(*name);
  for (NameState* name : completed) complete(*name);
}

// --- direct rounds by messages

// A cancelled direct round has waited for too long, so its negotiation may fail now.
void Negotiations::abandon_direct_round(Negotiation& negotiation) {
  if (!negotiation.is_direct()) return;
  if (std::exchange(negotiation.stage, Negotiation::Stage::kOpen) == Negotiation::Stage::kCancelled)
    open_.look_at(negotiation.opened);
}

Status Negotiations::end_direct_round(NameState& name) {
  cache_ids_.note_use(name.cache_id);
  expire_duplicates(name.negotiation.n_failed_before, &name.negotiation);
  close(name);
  return handle_later(name);
}

Status Negotiations::handle_later(NameState& name) {
  for (Reported& reported : std::exchange(name.later, {})) {
    const int rank = reported.rank;
    if (name.negotiation.has_arrived_directly(rank)) {
      name.later.push_back(std::move(reported));
      continue;
    }
    const bool waits = members_.is_waiting(rank);  // the rank began to wait after that report, and will not repeat it
    if (Status status = handle(name, std::move(reported)); !status.ok()) return status;
    if (waits) members_.waits(rank);
  }
  return Status::ok_status();
}

// --- from the first report to the last

void Negotiations::open(Negotiation& negotiation, TimePoint now) {
  negotiation.stage = Negotiation::Stage::kOpen;
  negotiation.opened = now;
  negotiation.n_failed_before = failures_.n_failed();
  negotiation.next_report = now + options_.stall.warning;
  negotiation.is_reported = false;
  open_.opened(now);
}

void Negotiations::complete(NameState& name) {
  const Signature& signature = name.signature();
  const auto text = [&] { return call_text(signature.collective, name.name); };
  if (!name.negotiation.has_all() && signature.needs_all) {
    fail(name, ErrorKind::kMismatch,
         text() + " needs all ranks, and some have joined and take no part any more: " + members_.joined_text() + ".");
  } else if (name.is_root_absent(members_)) {
    fail(name, ErrorKind::kInvalidArgument,
         text() + ": its root, rank " + std::to_string(signature.root) +
             ", has joined and takes no part any more. Choose a root that joins last, for example the rank that join() "
             "returned last time.");
  } else if (const std::string why = name.why_not_captured(members_); !why.empty()) {
    fail(name, ErrorKind::kInvalidArgument, text() + ": " + why + ".");
  } else {
    if (!name.negotiation.has_all()) {
      name.negotiation.way = ways_.way_without(name.negotiation.absent(), signature, name.homes());
    } else if (name.negotiation.has_full()) {
      const std::vector<HomeId> homes = name.homes();
      const Way way = ways_.way_of(signature, homes);
      if (std::ranges::any_of(homes, is_captured) && way != Way::kGraph) {
        return fail(name, ErrorKind::kInvalidArgument,
                    text() +
                        ": its stream is being captured into a CUDA graph, of which it cannot be part, as it does "
                        "not go by NCCL: its tensors are not on the GPUs of the lane's first call by NCCL, or "
                        "NCCL does not make this call.");
      }
      name.negotiation.way = way;
    }
    name.negotiation.stage = Negotiation::Stage::kReady;
    ready_.push(name);
    expire_duplicates(name.negotiation.n_failed_before, &name.negotiation);
  }
}

void Negotiations::close(NameState& name) {
  if (name.negotiation.is_pressing()) --n_pressing_;
  name.negotiation.close();
  open_.closed();
}

// --- failures

void Negotiations::fail(NameState& name, ErrorKind kind, const std::string& text,
                        const std::optional<DuplicateCall>& duplicate, bool fails_late_calls) {
  if (name.negotiation.is_ready()) ready_.remove(name);  // complete but not yet in the log: it fails instead
  failures_.fail(name, members_, kind, text, duplicate, fails_late_calls);
  close(name);
  forget_if_unused(name);
}

void Negotiations::expire_duplicates(std::uint64_t n_failed_before, const Negotiation* negotiation) {
  for (NameState* name : failures_.expire_duplicates(n_failed_before)) {
    if (&name->negotiation != negotiation) forget_if_unused(*name);
  }
}

void Negotiations::fail_all(const Status& why) {
  std::vector<NameState*> open;
  for (auto& [key, name] : names_) {
    if (name->negotiation.is_open()) open.push_back(name.get());
  }
  for (NameState* name : open) fail(*name, why.kind(), why.message());
}

std::vector<StallReport> Negotiations::check_stalls(std::optional<TimePoint> groups_due, TimePoint now) {
  Stalls found = open_.check(names_, members_, groups_due, now);
  end(found);
  return std::move(found.reports);
}

void Negotiations::check_standstill(const Standstill& standstill) {
  if (standstill.holds(names_, members_)) end(end_standstill(names_, members_));
}

void Negotiations::end(const Stalls& found) {
  cancelled_.insert(cancelled_.end(), found.cancelled.begin(), found.cancelled.end());
  for (const auto& [name, kind, text, fails_late_calls] : found.failing)
    fail(*name, kind, text, std::nullopt, fails_late_calls);
}

void Negotiations::take_ended(std::vector<LogEntry>& entries) {
  for (FailEntry& failure : failures_.take()) entries.emplace_back(std::move(failure));
  for (const CancelEntry& cancel : std::exchange(cancelled_, {})) entries.emplace_back(cancel);
}

}  // namespace ciranda
