#include "agree/rounds.hpp"

#include <memory>

namespace ciranda {

NamedRounds& Rounds::name_for(const std::string& name, bool is_cacheable) {
  std::unique_ptr<NamedRounds>& entry = names_[name];
  if (!entry) entry = std::make_unique<NamedRounds>(name, is_cacheable, members_.size());
  return *entry;
}

void Rounds::forget_if_unused(NamedRounds& name) {
  if (name.cache_id == kNoCacheId && !name.round.is_open() && name.owed.empty()) names_.erase(std::string(name.name));
}

// --- reports

Status Rounds::report(NamedRounds& name, Reported reported) {
  const int rank = reported.rank;
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

Status Rounds::hear(NamedRounds& name, Reported reported) {
  const int rank = reported.rank;
  Round& round = name.round;
  if (!reported.direct_round) end_hope_of_direct_round(round);
  if (failures_.answer(name, rank)) {
    forget_if_unused(name);
    return Status::ok_status();
  }
  const bool was_pending = round.has_arrived(rank);
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
  if (reported.direct_round && round.n_arrived == 1) {
    if (!members_.has_any_joined()) round.stage = Round::Stage::kDirect;
    round.direct_round = *reported.direct_round;
  }
  if (!reported.input.empty()) {
    round.contribute(rank, reported.input, options_.limits.along_bytes(round.arrivals.size()));
  }
  if (reported.signature) {
    round.in_full.resize(static_cast<std::size_t>(members_.size()));
    round.in_full[static_cast<std::size_t>(rank)] = std::move(*reported.signature);
  }
  if (round.is_direct()) return round.has_all() ? end_direct_round(name) : Status::ok_status();
  if (std::string why = name.disagreement(rank, members_); !why.empty()) {
    fail(name, ErrorKind::kMismatch,
         "Ranks disagree about '" + name.name + "': " + why + ". Every rank must make the same call for a name.");
  } else if (round.is_complete(members_)) {
    complete(name);
  }
  return Status::ok_status();
}

void Rounds::arrive(NamedRounds& name, const Reported& reported) {
  members_.heard(reported.rank, name.name, reported.when);
  Round& round = name.round;
  if (!round.is_open()) open(round, reported.when);
  const bool was_pressing = round.is_pressing();
  round.arrive(reported.rank, reported.signature ? Arrival::kInFull : Arrival::kUnchanged);
  ++(reported.is_deferrable ? round.n_deferrable : round.n_urgent);
  if (!was_pressing && round.is_pressing()) ++n_pressing_;
}

void Rounds::join(int member) {
  members_.join(member);
  std::vector<NamedRounds*> forgiven;
  std::vector<NamedRounds*> completed;
  for (auto& [key, name] : names_) {
    if (failures_.forgive(*name, member)) forgiven.push_back(name.get());
    if (!name->round.has_arrived(member)) end_hope_of_direct_round(name->round);
    if (name->round.is_waiting() && name->round.is_complete(members_)) completed.push_back(name.get());
  }
  for (NamedRounds* name : forgiven) forget_if_unused(*name);
  for (NamedRounds* name : completed) complete(*name);
}

// --- direct rounds by messages

// A cancelled round has waited for too long, so it may fail now.
void Rounds::end_hope_of_direct_round(Round& round) {
  if (!round.is_direct()) return;
  if (std::exchange(round.stage, Round::Stage::kOpen) == Round::Stage::kCancelled) open_.look_at(round.opened);
}

Status Rounds::end_direct_round(NamedRounds& name) {
  cache_ids_.note_use(name.cache_id);
  forgive_duplicates(name.round.n_failed_before, &name.round);
  close(name);
  return hear_later(name);
}

Status Rounds::hear_later(NamedRounds& name) {
  for (Reported& reported : std::exchange(name.later, {})) {
    const int rank = reported.rank;
    if (name.round.has_come_directly(rank)) {
      name.later.push_back(std::move(reported));
      continue;
    }
    const bool waits = members_.is_waiting(rank);  // the rank began to wait after that report, and will not repeat it
    if (Status status = hear(name, std::move(reported)); !status.ok()) return status;
    if (waits) members_.waits(rank);
  }
  return Status::ok_status();
}

// --- from the first report to the last

void Rounds::open(Round& round, TimePoint now) {
  round.stage = Round::Stage::kOpen;
  round.opened = now;
  round.n_failed_before = failures_.n_failed();
  round.next_report = now + options_.stall.warning;
  round.is_told = false;
  open_.opened(now);
}

void Rounds::complete(NamedRounds& name) {
  const Signature& signature = name.signature();
  const auto text = [&] { return call_text(signature.collective, name.name); };
  if (!name.round.has_all() && signature.needs_all) {
    fail(name, ErrorKind::kMismatch,
         text() + " needs all ranks, and some have joined and take no part any more: " + members_.joined_text() + ".");
  } else if (name.is_root_absent(members_)) {
    fail(name, ErrorKind::kInvalidArgument,
         text() + ": its root, rank " + std::to_string(signature.root) +
             ", has joined and takes no part any more. Choose a root that joins last, for example the rank that join() "
             "returned last time.");
  } else {
    name.round.stage = Round::Stage::kReady;
    ready_.push(name);
    forgive_duplicates(name.round.n_failed_before, &name.round);
  }
}

void Rounds::close(NamedRounds& name) {
  if (name.round.is_pressing()) --n_pressing_;
  name.round.close();
  open_.closed();
}

// --- failures

void Rounds::fail(NamedRounds& name, ErrorKind kind, const std::string& text,
                  const std::optional<DuplicateCall>& duplicate, bool is_owed) {
  if (name.round.is_ready()) ready_.remove(name);  // complete but not yet in the log: it fails instead
  failures_.fail(name, members_, kind, text, duplicate, is_owed);
  close(name);
  forget_if_unused(name);
}

void Rounds::forgive_duplicates(std::uint64_t n_failed_before, const Round* round) {
  for (NamedRounds* name : failures_.forgive_duplicates(n_failed_before)) {
    if (&name->round != round) forget_if_unused(*name);
  }
}

void Rounds::fail_all(const Status& why) {
  std::vector<NamedRounds*> open;
  for (auto& [key, name] : names_) {
    if (name->round.is_open()) open.push_back(name.get());
  }
  for (NamedRounds* name : open) fail(*name, why.kind(), why.message());
}

std::vector<StallReport> Rounds::check_stalls(std::optional<TimePoint> groups_due, TimePoint now) {
  Stalls found = open_.check(names_, members_, groups_due, now);
  end(found);
  return std::move(found.reports);
}

void Rounds::check_standstill(const Standstill& standstill) {
  if (standstill.holds(names_, members_)) end(end_standstill(names_, members_));
}

void Rounds::end(const Stalls& found) {
  cancelled_.insert(cancelled_.end(), found.cancelled.begin(), found.cancelled.end());
  for (const auto& [name, kind, text, is_owed] : found.failing) fail(*name, kind, text, std::nullopt, is_owed);
}

void Rounds::take_ended(std::vector<LogEntry>& entries) {
  for (FailEntry& failure : failures_.take()) entries.emplace_back(std::move(failure));
  for (const CancelEntry& cancel : std::exchange(cancelled_, {})) entries.emplace_back(cancel);
}

}  // namespace ciranda
