#include "agree/standstill.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/list_ranks.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kMostNames = 3;   // listed for one member
constexpr std::size_t kMostGroups = 8;  // of members that wait for the same calls

using Names = std::vector<NameState*>;

// Negotiations that wait, the oldest first.
Names waiting_names(const NameStates& names) {
  Names waiting;
  for (const auto& [key, name] : names) {
    if (name->negotiation.is_waiting()) waiting.push_back(name.get());
  }
  std::sort(waiting.begin(), waiting.end(), [](const NameState* a, const NameState* b) {
    return std::tie(a->negotiation.opened, a->name) < std::tie(b->negotiation.opened, b->name);
  });
  return waiting;
}

// "'a', 'b', 'c' and 4 more"
std::string what_awaits(int member, const Names& waiting) {
  std::string text;
  std::size_t n = 0;
  for (const NameState* name : waiting) {
    if (!name->negotiation.has_arrived(member) || ++n > kMostNames) continue;
    text += (n == 1 ? "'" : ", '") + name->name + "'";
  }
  return n > kMostNames ? text + " and " + std::to_string(n - kMostNames) + " more" : text;
}

// "rank 0 waits for 'a'; ranks 1, 2 wait for 'b'; rank 3 has joined"
std::string who_awaits_what(const Names& waiting, const Members& members) {
  std::map<std::string, std::vector<int>> ranks_by_text;
  std::vector<std::string> texts;  // in order of the first member that waits for each
  for (int member = 0; member < members.size(); ++member) {
    if (members.has_joined(member)) continue;
    const std::string text = what_awaits(member, waiting);
    std::vector<int>& ranks = ranks_by_text[text];
    if (ranks.empty()) texts.push_back(text);
    ranks.push_back(members.rank(member));
  }
  std::string all;
  for (std::size_t i = 0; i < std::min(texts.size(), kMostGroups); ++i) {
    const std::vector<int>& ranks = ranks_by_text[texts[i]];
    all += (i == 0 ? "" : "; ") + list_ranks(ranks) + (ranks.size() == 1 ? " waits for " : " wait for ") + texts[i];
  }
  if (texts.size() > kMostGroups) all += "; others for other calls";
  if (members.has_any_joined()) all += "; " + members.joined_text() + " joined";
  return all;
}

int n_awaited_by(int member, const Names& waiting) {
  return static_cast<int>(std::count_if(waiting.begin(), waiting.end(),
                                        [&](const auto* name) { return name->negotiation.has_arrived(member); }));
}

// True if members add or remove different process sets: all waiting calls add or remove sets, and all members wait for
// the same number of calls.
bool are_for_other_sets(const Names& waiting, const Members& members) {
  const auto is_about_sets = [](const NameState* name) {
    return info(name->signature().collective).subject == Subject::kSets;
  };
  if (!std::all_of(waiting.begin(), waiting.end(), is_about_sets)) return false;
  std::optional<int> n_of_all;
  for (int member = 0; member < members.size(); ++member) {
    if (members.has_joined(member)) continue;
    const int n_awaited = n_awaited_by(member, waiting);
    if (n_of_all.value_or(n_awaited) != n_awaited) return false;
    n_of_all = n_awaited;
  }
  return true;
}

constexpr std::string_view kSetsDiffer =
    ". All ranks must add and remove the same process sets, with the same ranks, in the same order.";
constexpr std::string_view kCallsDiffer =
    ". Each of these calls lacks a rank, and no rank makes another before one of them is done. All ranks must make the "
    "same calls, those that they wait for in the same order. Usually, ranks have different numbers of batches (join() "
    "lets the others finish), some leave a call out (a metric, a validation, one under 'if rank() == 0'), or they run "
    "different programs.";

}  // namespace

void Standstill::stands(int member, const StandingMessage& report) {
  StandingMessage& last = reports_[static_cast<std::size_t>(member)];
  n_standing_ += (report.n_pending > 0 ? 1 : 0) - (last.n_pending > 0 ? 1 : 0);
  last = report;
}

bool Standstill::may_hold(const Members& members, std::uint64_t n_entries) const {
  if (n_standing_ == 0 || n_standing_ + members.n_joined() < members.size()) return false;
  return std::all_of(reports_.begin(), reports_.end(), [n_entries](const StandingMessage& report) {
    return report.n_pending == 0 || report.log_index == n_entries;
  });
}

bool Standstill::holds(const NameStates& names, const Members& members) const {
  std::vector<std::uint32_t> n_open(reports_.size());
  for (const auto& [key, name] : names) {
    if (!name->negotiation.is_open()) continue;
    if (!name->negotiation.is_waiting() || !name->later.empty()) return false;
    for (int member = 0; member < members.size(); ++member) {
      if (name->negotiation.has_arrived(member)) ++n_open[static_cast<std::size_t>(member)];
    }
  }
  for (int member = 0; member < members.size(); ++member) {
    const auto at = static_cast<std::size_t>(member);
    if (!members.has_joined(member) && reports_[at].n_pending != n_open[at]) return false;
  }
  return true;
}

Stalls end_standstill(const NameStates& names, const Members& members) {
  Stalls found;
  const Names waiting = waiting_names(names);
  for (NameState* name : waiting) {
    if (!name->negotiation.is_direct()) continue;
    name->negotiation.stage = Negotiation::Stage::kCancelled;
    found.cancelled.push_back({name->cache_id, name->negotiation.direct_round});
  }
  if (!found.cancelled.empty()) return found;
  const bool do_sets_differ = are_for_other_sets(waiting, members);
  const std::string text = " can never be done, as ranks wait for each other: " + who_awaits_what(waiting, members) +
                           std::string(do_sets_differ ? kSetsDiffer : kCallsDiffer);
  for (NameState* name : waiting) {
    found.failing.push_back({name, ErrorKind::kMismatch, "'" + name->name + "'" + text, !do_sets_differ});
  }
  return found;
}

}  // namespace ciranda
