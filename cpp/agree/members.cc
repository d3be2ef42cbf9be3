#include "agree/members.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "base/list_ranks.hpp"

namespace ciranda {

std::string seconds_text(std::chrono::nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

Members::Members(int size, std::vector<int> ranks, std::vector<std::string> hosts)
    : ranks_(std::move(ranks)),
      hosts_(std::move(hosts)),
      is_waiting_(static_cast<std::size_t>(size)),
      has_joined_(static_cast<std::size_t>(size)),
      last_reports_(static_cast<std::size_t>(size)) {
  if (!ranks_.empty()) return;
  ranks_.resize(static_cast<std::size_t>(size));
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

int Members::member(int rank) const {
  return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

void Members::note_report(int member, const std::string& name, TimePoint now) {
  const auto at = static_cast<std::size_t>(member);
  if (is_waiting_[at]) {
    is_waiting_[at] = false;
    --n_waiting_;
  }
  note(last_reports_[at], name, now);
}

void Members::note_report_of_all(const std::string& name, TimePoint now) { note(last_of_all_, name, now); }

void Members::note(LastReport& last, const std::string& name, TimePoint now) {
  last.name = name;
  last.when = now;
  last.nth = ++n_noted_;
}

void Members::waits(int member) {
  const auto at = static_cast<std::size_t>(member);
  if (!is_waiting_[at]) ++n_waiting_;
  is_waiting_[at] = true;
}

void Members::join(int member) {
  has_joined_[static_cast<std::size_t>(member)] = true;
  ++n_joined_;
  last_joined_ = member;
}

std::optional<int> Members::last_joined() const {
  if (n_joined_ < size()) return std::nullopt;
  return last_joined_;
}

void Members::return_all() {
  has_joined_.assign(has_joined_.size(), false);
  n_joined_ = 0;
}

std::string Members::rank_text(int member) const { return "rank " + std::to_string(rank(member)); }

std::string Members::text(int member) const {
  std::string text = rank_text(member);
  const auto at = static_cast<std::size_t>(member);
  if (at < hosts_.size() && !hosts_[at].empty()) text += " (host " + hosts_[at] + ")";
  return text;
}

std::string Members::joined_text() const {
  std::vector<int> joined;
  for (int member = 0; member < size(); ++member) {
    if (has_joined(member)) joined.push_back(rank(member));
  }
  return list_ranks(joined);
}

std::string Members::last_text(int member, TimePoint now) const {
  const auto at = static_cast<std::size_t>(member);
  const LastReport& last = last_of_all_.nth > last_reports_[at].nth ? last_of_all_ : last_reports_[at];
  if (last.name.empty()) return text(member) + ", which has submitted nothing yet";
  return text(member) + ", which last submitted '" + last.name + "' " + seconds_text(now - last.when) + " ago";
}

}  // namespace ciranda
