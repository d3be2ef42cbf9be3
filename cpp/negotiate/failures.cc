#include "negotiate/failures.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

// A member that stands there twice is in two ranges.
std::vector<RankRange> ranges_of(std::vector<std::int32_t> members) {
  std::sort(members.begin(), members.end());
  std::vector<RankRange> ranges;
  for (const std::int32_t member : members) {
    if (!ranges.empty() && ranges.back().last + 1 == member) {
      ranges.back().last = member;
    } else {
      ranges.push_back({member, member});
    }
  }
  return ranges;
}

}  // namespace

void Failures::add(NamedRounds& name, ErrorKind kind, const std::string& text,
                   const std::vector<std::int32_t>& members) {
  const bool has_last = name.last_failure < failures_.size() && failures_[name.last_failure].name == name.name;
  if (!has_last || failures_[name.last_failure].text != text || failures_[name.last_failure].kind != kind) {
    name.last_failure = failures_.size();
    failures_.push_back({name.name, kind, text, {}});
  }
  auto& all = failures_[name.last_failure].members;
  all.insert(all.end(), members.begin(), members.end());
}

std::vector<FailEntry> Failures::take() {
  std::vector<FailEntry> entries;
  for (Failure& failure : std::exchange(failures_, {})) {
    entries.push_back(
        {std::move(failure.name), failure.kind, std::move(failure.text), ranges_of(std::move(failure.members))});
  }
  return entries;
}

}  // namespace ciranda
