// Coordinator: the part that notices ranks that never come.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/earliest.hpp"
#include "negotiate/coordinator.hpp"

namespace ciranda {

namespace {

// How many of the missing ranks are checked for another order: a report stays cheap where hundreds are missing.
constexpr std::size_t kMissingAsked = 4;
// In how many reports of one check: each passes over all names.
constexpr std::size_t kReportsOfOrder = 4;

}  // namespace

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
  std::vector<std::pair<NamedRounds*, std::string>> to_fail;  // told of while all of them are open
  std::size_t n_told = 0;
  const auto report_of = [&](const NamedRounds& name) { return stall_report(name, now, n_told++ < kReportsOfOrder); };
  for (auto& [key, name] : names_) {
    Round& round = name->round;
    if (!round.is_open || round.is_ready) continue;
    const bool is_over = options_.stall_shutdown.count() > 0 && now - round.opened >= options_.stall_shutdown;
    if (is_over && !round.is_swap) {
      to_fail.emplace_back(name.get(), report_of(*name).text);
      continue;
    }
    if (is_over && !std::exchange(round.is_called_off, true)) call_offs_.push_back({name->slot, round.swap_round});
    if (options_.stall_warning.count() > 0 && now >= round.next_report) {
      reports.push_back(report_of(*name));
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
  for (const auto& [name, text] : to_fail) fail_round(*name, ErrorKind::kTimeout, text + " It has failed now.");
  return reports;
}

StallReport Coordinator::stall_report(const NamedRounds& name, TimePoint now, bool tells_order) const {
  StallReport report = name.stall_report(members_, now);
  const std::size_t n_asked = tells_order ? std::min(report.missing.size(), kMissingAsked) : 0;
  for (std::size_t i = 0; i < n_asked; ++i) {
    const std::string text = other_order_text(name.round, report.missing[i]);
    if (text.empty()) continue;
    report.text += text;
    break;
  }
  return report;
}

// "" unless the missing member has made a call that one of those who wait here has not: then each waits for the other.
std::string Coordinator::other_order_text(const Round& stalled, int missing) const {
  for (const auto& [key, other] : names_) {
    const Round& round = other->round;
    if (!round.is_open || round.is_ready || !round.has_arrived(missing)) continue;
    for (int member = 0; member < members_.size(); ++member) {
      if (!stalled.has_arrived(member) || round.has_arrived(member) || members_.has_joined(member)) continue;
      return " Rank " + std::to_string(members_.rank(missing)) + " has submitted '" + other->name +
             "' instead, which rank " + std::to_string(members_.rank(member)) +
             " has not: these two make their calls in different orders, or make different calls. A rank that waits for "
             "one call before it makes the next must make them in the same order as the others.";
    }
  }
  return "";
}

}  // namespace ciranda
