#include "agree/open_negotiations.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/earliest.hpp"

namespace ciranda {

namespace {

constexpr const char* kFailed = " It has failed now.";
// The most missing ranks that are checked for another order of calls: bounds the cost if hundreds are missing.
constexpr std::size_t kMissingAsked = 4;
// The most reports of one check that look for another order, since each passes over all names.
constexpr std::size_t kReportsOfOrder = 4;

// True if the missing member has made a call that some member waiting in this negotiation has not made: then each of
// the two waits for the other.
bool note_other_order(const NameStates& names, const Members& members, const Negotiation& stalled, int missing,
                      StallReport& report) {
  for (const auto& [key, other] : names) {
    const Negotiation& negotiation = other->negotiation;
    if (!negotiation.is_waiting() || !negotiation.has_arrived(missing)) continue;
    for (int member = 0; member < members.size(); ++member) {
      if (!stalled.has_arrived(member) || negotiation.has_arrived(member) || members.has_joined(member)) continue;
      report.crossed = other.get();
      report.text +=
          " Rank " + std::to_string(members.rank(missing)) + " has submitted '" + other->name +
          "' instead, which rank " + std::to_string(members.rank(member)) +
          " has not: these two make their calls in different orders, or make different calls. A rank that waits for "
          "one call before it makes the next must make them in the same order as the others.";
      return true;
    }
  }
  return false;
}

void note_other_order(const NameStates& names, const Members& members, const Negotiation& stalled,
                      StallReport& report) {
  const std::size_t n_asked = std::min(report.missing.size(), kMissingAsked);
  for (std::size_t i = 0; i < n_asked; ++i) {
    if (note_other_order(names, members, stalled, report.missing[i], report)) break;
  }
}

}  // namespace

std::optional<TimePoint> OpenNegotiations::first_due(TimePoint opened, TimePoint next_report) const {
  std::optional<TimePoint> due;
  if (options_.stall.warning.count() > 0) due = next_report;
  if (options_.stall.shutdown.count() > 0) due = earliest(due, opened + options_.stall.shutdown);
  return due;
}

Stalls OpenNegotiations::check(const NameStates& names, const Members& members, std::optional<TimePoint> groups_due,
                               TimePoint now) {
  Stalls found;
  std::size_t n_reported = 0;
  const auto report_of = [&](const NameState& name, bool is_reported = false) {
    StallReport report = name.stall_report(members, now, is_reported);
    if (!is_reported && n_reported++ < kReportsOfOrder) note_other_order(names, members, name.negotiation, report);
    return report;
  };
  const auto fail = [&](NameState& name, ErrorKind kind, const std::string& text) {
    const auto is_it = [&](const Stalls::Failing& each) { return each.name == &name; };
    if (std::none_of(found.failing.begin(), found.failing.end(), is_it))
      found.failing.push_back({&name, kind, text, true});
  };
  due_ = groups_due;
  for (const auto& [key, name] : names) {
    Negotiation& negotiation = name->negotiation;
    if (!negotiation.is_waiting()) continue;
    bool is_over = options_.stall.shutdown.count() > 0 && now - negotiation.opened >= options_.stall.shutdown;
    const bool is_due = options_.stall.warning.count() > 0 && now >= negotiation.next_report;
    StallReport report;
    const bool is_reported = negotiation.is_reported && !is_over && !options_.fails_other_orders;
    if (is_due || (is_over && !negotiation.is_direct())) report = report_of(*name, is_reported);
    const bool is_in_vain = options_.fails_other_orders && is_due && report.crossed != nullptr;
    const ErrorKind kind = is_over ? ErrorKind::kTimeout : ErrorKind::kMismatch;
    is_over = is_over || is_in_vain;
    if (is_over && !negotiation.is_direct()) {
      fail(*name, kind, report.text + kFailed);
      if (is_in_vain && !report.crossed->negotiation.is_direct()) {
        fail(*report.crossed, kind, report_of(*report.crossed).text + kFailed);
      }
      continue;
    }
    if (is_over && std::exchange(negotiation.stage, Negotiation::Stage::kCancelled) != Negotiation::Stage::kCancelled) {
      found.cancelled.push_back({name->cache_id, negotiation.direct_round});
    }
    if (is_due) {
      found.reports.push_back(report);
      negotiation.is_reported = true;
      negotiation.next_report =
          now + std::max<std::chrono::nanoseconds>(options_.stall.warning, now - negotiation.opened);
    }
    if (!is_over) due_ = earliest(due_, first_due(negotiation.opened, negotiation.next_report));
    if (is_over && options_.stall.warning.count() > 0) due_ = earliest(due_, negotiation.next_report);
  }
  return found;
}

}  // namespace ciranda
