#include "negotiate/coordinator.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace ciranda {
namespace {

// A planned group of this size keeps the wire busy for longer than one agreement takes, on every transport we know.
constexpr std::size_t kPlannedGroupBytes = 1 << 20;
// While the wire is busy at least this much must have gathered before another entry is worth its overhead.
constexpr std::size_t kBusyBatchBytes = 4 << 20;

std::string join_ranks(const std::vector<std::string>& parts) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) out += ", ";
    if (i == 16) return out + "and " + std::to_string(parts.size() - i) + " more";
    out += parts[i];
  }
  return out;
}

std::string seconds_text(std::chrono::nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

struct Coordinator::Round {
  std::vector<Arrival> arrivals;
  std::vector<Signature> in_full;  // by rank, where arrivals says so
  int n_arrived = 0;
  bool is_open = false;
  bool is_ready = false;
  bool is_deferrable = true;
  std::uint64_t n_failed_before = 0;  // failed rounds of all names when this one opened
  std::optional<PlannedGroup> group;
  TimePoint opened;
  TimePoint next_report;
};

struct Coordinator::Name {
  std::string name;
  bool is_cacheable = true;
  std::uint32_t slot = kNoSlot;
  bool has_agreed = false;
  Signature agreed;  // what all ranks had last time; the first dimensions of rank 0
  std::vector<std::vector<std::int64_t>> first_dims;
  struct Owed {
    int rank;
    ErrorKind kind;
    std::string text;
    bool is_duplicate;
    std::uint64_t n_failed_before;
  };
  std::vector<Owed> owed;
  Round round;
};

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      order_(kPlannedGroupBytes),
      is_waiting_(static_cast<std::size_t>(options_.size)),
      has_joined_(static_cast<std::size_t>(options_.size)),
      last_name_(static_cast<std::size_t>(options_.size)),
      last_announced_(static_cast<std::size_t>(options_.size)) {
  if (!options_.ranks.empty()) return;
  options_.ranks.resize(static_cast<std::size_t>(options_.size));
  std::iota(options_.ranks.begin(), options_.ranks.end(), 0);
}

Coordinator::~Coordinator() = default;

// --- announcements

Status Coordinator::on_request(int rank, RequestMessage message, TimePoint now) {
  if (Status status = validate(message.name, message.signature, options_.ranks); !status.ok()) {
    return Status::internal("rank " + std::to_string(world_rank(rank)) +
                            " announced what it should have refused: " + status.message());
  }
  Name& name = name_for(message.name, message.is_cacheable);
  return announce(name, rank, std::move(message.signature), message.is_deferrable, now);
}

Status Coordinator::on_ready(int rank, const ReadyMessage& message, TimePoint now) {
  for (const ReadyMessage::Item& item : message.items) {
    if (item.slot >= slots_.size()) {
      return Status::internal("rank " + std::to_string(world_rank(rank)) + " announced slot " +
                              std::to_string(item.slot) + " of only " + std::to_string(slots_.size()));
    }
    Status status = announce(*slots_[item.slot], rank, std::nullopt, item.is_deferrable, now);
    if (!status.ok()) return status;
  }
  return Status::ok_status();
}

Status Coordinator::on_duplicate(int rank, const DuplicateMessage& message, TimePoint now) {
  Name& name = name_for(message.name, true);
  if (answer_owed(name, rank)) return Status::ok_status();
  const Round& round = name.round;
  const bool was_pending = round.is_open && round.arrivals[static_cast<std::size_t>(rank)] != Arrival::kAbsent;
  arrive(name, rank, Arrival::kUnchanged, now);
  fail_round(name, ErrorKind::kInvalidArgument,
             "Duplicate name '" + name.name + "': " + rank_text(rank) +
                 " submitted it again while its first use was still pending. Wait for the first one, or give each its "
                 "own name.",
             Duplicate{rank, was_pending});
  return Status::ok_status();
}

void Coordinator::on_waiting(int rank) {
  if (is_waiting_[static_cast<std::size_t>(rank)]) return;
  is_waiting_[static_cast<std::size_t>(rank)] = true;
  ++n_waiting_;
}

Coordinator::Name& Coordinator::name_for(const std::string& name, bool is_cacheable) {
  std::unique_ptr<Name>& entry = names_[name];
  if (!entry) {
    entry = std::make_unique<Name>();
    entry->name = name;
    entry->is_cacheable = is_cacheable;
    entry->round.arrivals.assign(static_cast<std::size_t>(options_.size), Arrival::kAbsent);
  }
  return *entry;
}

void Coordinator::arrive(Name& name, int rank, Arrival arrival, TimePoint now) {
  const auto at = static_cast<std::size_t>(rank);
  Round& round = name.round;
  if (is_waiting_[at]) {
    is_waiting_[at] = false;  // who submits is not stuck in a wait; if another thread is, it says so again
    --n_waiting_;
  }
  last_name_[at] = name.name;
  last_announced_[at] = now;
  if (!round.is_open) {
    round.is_open = true;
    round.opened = now;
    round.n_failed_before = n_failed_rounds_;
    round.next_report = now + options_.stall_warning;
    ++n_open_rounds_;
    if (!stall_check_due_) stall_check_due_ = first_due(round);
  }
  if (round.arrivals[at] == Arrival::kAbsent) ++round.n_arrived;
  round.arrivals[at] = arrival;
}

Status Coordinator::announce(Name& name, int rank, std::optional<Signature> signature, bool is_deferrable,
                             TimePoint now) {
  if (answer_owed(name, rank)) return Status::ok_status();
  if (name.round.arrivals[static_cast<std::size_t>(rank)] != Arrival::kAbsent) {
    return Status::internal("rank " + std::to_string(world_rank(rank)) + " announced '" + name.name +
                            "' before it was answered");
  }
  if (has_joined_[static_cast<std::size_t>(rank)]) {
    return Status::internal("rank " + std::to_string(world_rank(rank)) + " announced '" + name.name +
                            "' after it had joined");
  }
  arrive(name, rank, signature ? Arrival::kInFull : Arrival::kUnchanged, now);
  Round& round = name.round;
  round.is_deferrable = round.is_deferrable && is_deferrable;
  if (signature) {
    round.in_full.resize(static_cast<std::size_t>(options_.size));
    round.in_full[static_cast<std::size_t>(rank)] = std::move(*signature);
  }
  if (std::string why = disagreement(name, rank); !why.empty()) {
    fail_round(name, ErrorKind::kMismatch,
               "Ranks disagree about '" + name.name + "': " + why + ". Every rank must make the same call for a name.");
  } else if (is_complete(round)) {
    complete_round(name);
  }
  return Status::ok_status();
}

// Compares the rank that has just arrived with another that was there before; all those agree with each other.
std::string Coordinator::disagreement(const Name& name, int rank) const {
  const Round& round = name.round;
  if (round.n_arrived < 2) return {};
  for (int other = 0; other < options_.size; ++other) {
    const Arrival arrival = round.arrivals[static_cast<std::size_t>(other)];
    if (other == rank || arrival == Arrival::kAbsent) continue;
    if (arrival == Arrival::kUnchanged && round.arrivals[static_cast<std::size_t>(rank)] == Arrival::kUnchanged) {
      return {};
    }
    const int low = std::min(rank, other);
    const int high = std::max(rank, other);
    if (describe_mismatch(signature_of(name, low), low, signature_of(name, high), high).empty()) return {};
    return describe_mismatch(shown_signature_of(name, low), world_rank(low), shown_signature_of(name, high),
                             world_rank(high));
  }
  return {};
}

const Signature& Coordinator::signature_of(const Name& name, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return name.round.arrivals[at] == Arrival::kInFull ? name.round.in_full[at] : name.agreed;
}

// What all that have arrived agree on.
const Signature& Coordinator::signature_of(const Name& name) const {
  int rank = 0;
  while (name.round.arrivals[static_cast<std::size_t>(rank)] == Arrival::kAbsent) ++rank;
  return signature_of(name, rank);
}

// The same with the rank's own first dimensions, as a message should show it.
Signature Coordinator::shown_signature_of(const Name& name, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  Signature signature = signature_of(name, rank);
  if (name.round.arrivals[at] != Arrival::kUnchanged) return signature;
  for (std::size_t tensor = 0; tensor < name.first_dims.size(); ++tensor) {
    signature.tensors[tensor].shape.front() = name.first_dims[tensor][at];
  }
  return signature;
}

// --- failures

bool Coordinator::answer_owed(Name& name, int rank) {
  const auto found = std::find_if(name.owed.begin(), name.owed.end(), [&](const auto& o) { return o.rank == rank; });
  if (found == name.owed.end()) return false;
  failures_.push_back(FailEntry{name.name, found->kind, found->text, {rank}});
  name.owed.erase(found);
  forget_if_unused(name);
  return true;
}

void Coordinator::fail_round(Name& name, ErrorKind kind, const std::string& text, std::optional<Duplicate> duplicate) {
  Round& round = name.round;
  if (round.is_ready) {  // complete but not yet in the log: it fails instead
    ready_.erase(std::remove(ready_.begin(), ready_.end(), &name), ready_.end());
    leave_group(name);
  }
  const int n_calls = duplicate && duplicate->was_pending ? 2 : 1;
  std::vector<std::int32_t> targets;
  for (int rank = 0; rank < options_.size; ++rank) {
    int n_made = round.arrivals[static_cast<std::size_t>(rank)] == Arrival::kAbsent ? 0 : 1;
    if (duplicate && rank == duplicate->rank) n_made = n_calls;
    targets.insert(targets.end(), static_cast<std::size_t>(n_made), rank);
    if (has_joined_[static_cast<std::size_t>(rank)]) continue;  // it will not make the call
    for (int call = n_made; call < n_calls; ++call) {
      name.owed.push_back({rank, kind, text, duplicate.has_value(), n_failed_rounds_});
    }
  }
  const bool is_listed = std::find(owed_duplicates_.begin(), owed_duplicates_.end(), &name) != owed_duplicates_.end();
  if (duplicate && !is_listed) owed_duplicates_.push_back(&name);
  ++n_failed_rounds_;
  failures_.push_back(FailEntry{name.name, kind, text, std::move(targets)});
  close_round(name);
  forget_if_unused(name);
}

// Only one rank may have made the duplicate call. When later all ranks have taken part in a round that opened after it,
// those that have not made it by then will not: their next call is a call of its own.
void Coordinator::forgive_duplicates(const Round& round) {
  for (Name* name : std::exchange(owed_duplicates_, {})) {
    std::erase_if(name->owed, [&](const Name::Owed& owed) {
      return owed.is_duplicate && owed.n_failed_before < round.n_failed_before;
    });
    const bool still_owed =
        std::any_of(name->owed.begin(), name->owed.end(), [](const Name::Owed& owed) { return owed.is_duplicate; });
    if (still_owed) {
      owed_duplicates_.push_back(name);
    } else if (&name->round != &round) {
      forget_if_unused(*name);
    }
  }
}

void Coordinator::close_round(Name& name) {
  Round& round = name.round;
  std::fill(round.arrivals.begin(), round.arrivals.end(), Arrival::kAbsent);
  round.in_full.clear();
  round.n_arrived = 0;
  round.is_open = round.is_ready = false;
  round.is_deferrable = true;
  if (--n_open_rounds_ == 0) stall_check_due_.reset();
}

void Coordinator::forget_if_unused(Name& name) {
  if (name.slot != kNoSlot || name.round.is_open || !name.owed.empty()) return;
  std::erase(owed_duplicates_, &name);
  names_.erase(std::string(name.name));
}

void Coordinator::fail_all(const Status& why) {
  std::vector<Name*> open;
  for (auto& [key, name] : names_) {
    if (name->round.is_open) open.push_back(name.get());
  }
  for (Name* name : open) fail_round(*name, why.kind(), why.message());
}

// --- joining

Status Coordinator::on_join(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (has_joined_[at]) return Status::internal("rank " + std::to_string(world_rank(rank)) + " joined twice");
  has_joined_[at] = true;
  ++n_joined_;
  forgive_joined(rank);
  if (n_joined_ == options_.size) last_joined_ = rank;
  std::vector<Name*> completed;
  for (auto& [key, name] : names_) {
    if (name->round.is_open && !name->round.is_ready && is_complete(name->round)) completed.push_back(name.get());
  }
  for (Name* name : completed) complete_round(*name);
  return Status::ok_status();
}

bool Coordinator::is_complete(const Round& round) const {
  if (n_joined_ == 0) return round.n_arrived == options_.size;
  for (std::size_t rank = 0; rank < round.arrivals.size(); ++rank) {
    if (round.arrivals[rank] == Arrival::kAbsent && !has_joined_[rank]) return false;
  }
  return true;
}

std::vector<std::int32_t> Coordinator::absent_from(const Round& round) const {
  std::vector<std::int32_t> absent;
  if (round.n_arrived == options_.size) return absent;
  for (std::int32_t rank = 0; rank < options_.size; ++rank) {
    if (round.arrivals[static_cast<std::size_t>(rank)] == Arrival::kAbsent) absent.push_back(rank);
  }
  return absent;
}

bool Coordinator::is_root_absent(const Name& name) const {
  const Signature& signature = signature_of(name);
  if (!info(signature.collective).has_root) return false;
  const auto found = std::find(options_.ranks.begin(), options_.ranks.end(), signature.root);
  return name.round.arrivals[static_cast<std::size_t>(found - options_.ranks.begin())] == Arrival::kAbsent;
}

void Coordinator::complete_round(Name& name) {
  if (name.round.n_arrived == options_.size || !is_root_absent(name)) {
    became_ready(name);
    return;
  }
  const Signature& signature = signature_of(name);
  fail_round(name, ErrorKind::kInvalidArgument,
             std::string(to_string(signature.collective)) + " '" + name.name + "': its root, rank " +
                 std::to_string(signature.root) +
                 ", has joined and takes no part any more. Choose a root that works to the end, for example the rank "
                 "that join() returned last time.");
}

// Who has joined makes no further calls: it owes no answer to any.
void Coordinator::forgive_joined(int rank) {
  std::vector<Name*> forgiven;
  for (auto& [key, name] : names_) {
    if (std::erase_if(name->owed, [rank](const Name::Owed& owed) { return owed.rank == rank; }) > 0) {
      forgiven.push_back(name.get());
    }
  }
  for (Name* name : forgiven) forget_if_unused(*name);
}

// --- what is carried out

void Coordinator::became_ready(Name& name) {
  name.round.is_ready = true;
  name.round.group.reset();
  ready_.push_back(&name);
  if (!owed_duplicates_.empty()) forgive_duplicates(name.round);
  if (!options_.learned_order || name.slot == kNoSlot) return;
  order_.observe(name.slot, name.agreed.n_bytes());
  if (plan_ != order_.plan()) {
    plan_ = order_.plan();
    n_in_group_.assign(order_.n_groups(), 0);
  }
  if (const auto group = order_.group_of(name.slot)) {
    name.round.group = PlannedGroup{plan_, *group};
    ++n_in_group_[*group];
  }
}

// A ready request is held while the rest of its planned group is still to come, unless somebody needs it now.
bool Coordinator::is_held(const Name& name) const {
  const auto& group = name.round.group;
  if (n_waiting_ > 0 || last_joined_ || !name.round.is_deferrable || !group || group->plan != plan_) return false;
  return n_in_group_[group->index] < order_.group_size(group->index);
}

void Coordinator::leave_group(Name& name) {
  const auto& group = name.round.group;
  if (group && group->plan == plan_) --n_in_group_[group->index];
  name.round.group.reset();
}

std::vector<LogEntry> Coordinator::take_entries(bool wire_is_idle) {
  std::vector<LogEntry> entries;
  entries.swap(failures_);
  if (!ready_.empty()) take_ready(wire_is_idle, entries);
  if (last_joined_ && ready_.empty()) {
    entries.emplace_back(JoinedEntry{*std::exchange(last_joined_, std::nullopt)});
    has_joined_.assign(has_joined_.size(), false);
    n_joined_ = 0;
  }
  return entries;
}

void Coordinator::take_ready(bool wire_is_idle, std::vector<LogEntry>& entries) {
  std::deque<Name*> waiting;
  std::vector<Name*> free;
  std::size_t n_free_bytes = 0;
  for (Name* name : ready_) {
    if (is_held(*name)) {
      waiting.push_back(name);
    } else {
      free.push_back(name);
      n_free_bytes += signature_of(*name).n_bytes();
    }
  }
  if (free.empty() || (!wire_is_idle && n_free_bytes < kBusyBatchBytes)) return;
  ready_ = std::move(waiting);
  for (std::size_t begin = 0; begin < free.size();) {
    std::size_t n_bytes = signature_of(*free[begin]).n_bytes();
    std::size_t end = begin + 1;
    while (end < free.size()) {
      n_bytes += signature_of(*free[end]).n_bytes();
      if (!can_travel_with(*free[begin], *free[end], n_bytes)) break;
      ++end;
    }
    ExecuteEntry entry;
    for (; begin < end; ++begin) {
      leave_group(*free[begin]);
      entry.items.push_back(execute_item(*free[begin]));
    }
    entries.emplace_back(std::move(entry));
  }
}

bool Coordinator::can_travel_with(Name& head, Name& other, std::size_t n_bytes) const {
  const Signature& a = signature_of(head);
  const Signature& b = signature_of(other);
  return n_bytes <= options_.fusion_threshold_bytes && a.collective == Collective::kAllreduce &&
         b.collective == Collective::kAllreduce && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.is_weighted == b.is_weighted &&
         a.tensors.front().dtype == b.tensors.front().dtype && absent_from(head.round) == absent_from(other.round);
}

ExecuteItem Coordinator::execute_item(Name& name) {
  ExecuteItem item;
  const bool in_full = std::any_of(name.round.arrivals.begin(), name.round.arrivals.end(),
                                   [](Arrival a) { return a == Arrival::kInFull; });
  item.absent = absent_from(name.round);
  if (in_full) update_agreed(name);
  if (in_full || name.slot == kNoSlot || !item.absent.empty()) {
    assign_slot(name);
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
  item.slot = name.slot;
  close_round(name);
  forget_if_unused(name);
  return item;
}

// What was sent in full replaces what was agreed before. REQUIRES: the round is open.
void Coordinator::update_agreed(Name& name) {
  const Signature signature = signature_of(name);
  if (info(signature.collective).first_dim_may_differ) {
    auto first_dims = name.first_dims;
    first_dims.resize(signature.tensors.size());
    for (std::size_t tensor = 0; tensor < signature.tensors.size(); ++tensor) {
      first_dims[tensor].resize(static_cast<std::size_t>(options_.size));
      for (int rank = 0; rank < options_.size; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        if (name.round.arrivals[at] != Arrival::kInFull) continue;  // unchanged: as it was
        first_dims[tensor][at] = name.round.in_full[at].tensors[tensor].shape.front();
      }
    }
    name.first_dims = std::move(first_dims);
  } else {
    name.first_dims.clear();
  }
  name.agreed = signature;
  name.has_agreed = true;
}

void Coordinator::assign_slot(Name& name) {
  if (name.slot != kNoSlot || !name.is_cacheable || slots_.size() >= options_.cache_capacity) return;
  name.slot = static_cast<std::uint32_t>(slots_.size());
  slots_.push_back(&name);
}

// --- ranks that never come

std::string Coordinator::rank_text(int rank) const {
  std::string text = "rank " + std::to_string(world_rank(rank));
  const auto at = static_cast<std::size_t>(rank);
  if (at < options_.hosts.size() && !options_.hosts[at].empty()) text += " (host " + options_.hosts[at] + ")";
  return text;
}

Coordinator::StallReport Coordinator::describe_stall(const Name& name, TimePoint now) const {
  StallReport report;
  std::vector<std::string> missing;
  std::vector<std::string> present;
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (name.round.arrivals[at] != Arrival::kAbsent) {
      present.push_back(std::to_string(world_rank(rank)));
      continue;
    }
    if (has_joined_[at]) continue;
    report.missing.push_back(rank);
    std::string text = rank_text(rank);
    text += last_name_[at].empty()
                ? ", which has submitted nothing yet"
                : ", which last submitted '" + last_name_[at] + "' " + seconds_text(now - last_announced_[at]) + " ago";
    missing.push_back(text);
  }
  report.text = "'" + name.name + "' has waited " + seconds_text(now - name.round.opened) + " for " +
                join_ranks(missing) + ". Ranks that submitted it: " + join_ranks(present) +
                ". All ranks must make the same calls; if one works long on its own, raise "
                "CIRANDA_STALL_WARNING_SECONDS and CIRANDA_STALL_SHUTDOWN_SECONDS.";
  return report;
}

std::optional<TimePoint> Coordinator::first_due(const Round& round) const {
  std::optional<TimePoint> due;
  if (options_.stall_warning.count() > 0) due = round.next_report;
  if (options_.stall_shutdown.count() > 0) {
    const TimePoint end = round.opened + options_.stall_shutdown;
    due = due ? std::min(*due, end) : end;
  }
  return due;
}

std::vector<Coordinator::StallReport> Coordinator::check_stalls(TimePoint now) {
  std::vector<StallReport> reports;
  if (!stall_check_due_ || now < *stall_check_due_) return reports;
  std::optional<TimePoint> next;
  std::vector<Name*> to_fail;
  for (auto& [key, name] : names_) {
    Round& round = name->round;
    if (!round.is_open || round.is_ready) continue;
    const auto waited = now - round.opened;
    if (options_.stall_shutdown.count() > 0 && waited >= options_.stall_shutdown) {
      to_fail.push_back(name.get());
      continue;
    }
    if (options_.stall_warning.count() > 0 && now >= round.next_report) {
      reports.push_back(describe_stall(*name, now));
      round.next_report = now + options_.stall_warning;
    }
    const auto due = first_due(round);
    if (due && (!next || *due < *next)) next = due;
  }
  stall_check_due_ = next;
  for (Name* name : to_fail) {
    fail_round(*name, ErrorKind::kTimeout, describe_stall(*name, now).text + " It has failed now.");
  }
  return reports;
}

}  // namespace ciranda
