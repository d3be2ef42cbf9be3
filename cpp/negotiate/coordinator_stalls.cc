// Coordinator: the part that notices ranks that never come.
#include <utility>

#include "base/earliest.hpp"
#include "negotiate/coordinator.hpp"

namespace ciranda {

std::optional<TimePoint> Coordinator::first_due(TimePoint opened, TimePoint next_report) const {
  std::optional<TimePoint> due;
  if (options_.stall_warning.count() > 0) due = next_report;
  if (options_.stall_shutdown.count() > 0) {
    due = earliest(due, opened + options_.stall_shutdown);
  }
  return due;
}

std::vector<StallReport> Coordinator::check_stalls(TimePoint now) {
  std::vector<StallReport> reports;
  if (!stall_check_due_ || now < *stall_check_due_) return reports;
  disperse_stalled(now);
  std::optional<TimePoint> next;
  std::vector<NamedRounds*> to_fail;
  for (auto& [key, name] : names_) {
    Round& round = name->round;
    if (!round.is_open || round.is_ready) continue;
    const bool is_over = options_.stall_shutdown.count() > 0 && now - round.opened >= options_.stall_shutdown;
    if (is_over && !round.is_swap) {
      to_fail.push_back(name.get());
      continue;
    }
    if (is_over && !std::exchange(round.is_called_off, true)) call_offs_.push_back({name->slot, round.swap_round});
    if (options_.stall_warning.count() > 0 && now >= round.next_report) {
      reports.push_back(name->stall_report(members_, now));
      round.next_report = now + options_.stall_warning;
    }
    if (!is_over) next = earliest(next, first_due(round.opened, round.next_report));
    if (is_over && options_.stall_warning.count() > 0) next = earliest(next, round.next_report);
  }
  for (const auto& group : groups_.groups()) {
    if (!group->is_open() || group->is_ready) continue;
    next = earliest(next, first_due(group->opened, group->opened + options_.stall_warning));
  }
  stall_check_due_ = next;
  for (NamedRounds* name : to_fail) {
    fail_round(*name, ErrorKind::kTimeout, name->stall_report(members_, now).text + " It has failed now.");
  }
  return reports;
}

}  // namespace ciranda
