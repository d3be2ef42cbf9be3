#include "agree/failures.hpp"

#include <algorithm>
#include <utility>

namespace ciranda {
namespace {

// A member that is listed twice is in two ranges.
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

bool has_deferred_duplicate(const NameState& name) {
  return std::any_of(name.deferred_errors.begin(), name.deferred_errors.end(),
                     [](const auto& error) { return error.is_duplicate; });
}

}  // namespace

void Failures::fail(NameState& name, const Members& members, ErrorKind kind, const std::string& text,
                    const std::optional<DuplicateCall>& duplicate, bool fails_late_calls) {
  const int n_calls = duplicate && duplicate->was_pending ? 2 : 1;
  std::vector<std::int32_t> targets;
  NameState::DeferredError error{kind, text, duplicate.has_value(), n_failed_, {}, 0};
  error.n_calls.resize(static_cast<std::size_t>(members.size()));
  for (int member = 0; member < members.size(); ++member) {
    int n_made = name.negotiation.has_arrived(member) ? 1 : 0;
    if (duplicate && member == duplicate->member) n_made = n_calls;
    targets.insert(targets.end(), static_cast<std::size_t>(n_made), member);
    if (!fails_late_calls || members.has_joined(member)) continue;  // it will not make the call
    error.n_calls[static_cast<std::size_t>(member)] = static_cast<std::uint8_t>(n_calls - n_made);
    error.n_calls_of_all += static_cast<std::size_t>(n_calls - n_made);
  }
  if (error.n_calls_of_all > 0) name.deferred_errors.push_back(std::move(error));
  const bool is_listed =
      std::find(deferred_duplicates_.begin(), deferred_duplicates_.end(), &name) != deferred_duplicates_.end();
  if (has_deferred_duplicate(name) && !is_listed) deferred_duplicates_.push_back(&name);
  ++n_failed_;
  add(name, kind, text, targets);
}

bool Failures::answer(NameState& name, int member) {
  const auto found = std::find_if(name.deferred_errors.begin(), name.deferred_errors.end(), [&](const auto& error) {
    return error.n_calls[static_cast<std::size_t>(member)] > 0;
  });
  if (found == name.deferred_errors.end()) return false;
  add(name, found->kind, found->text, {member});
  --found->n_calls[static_cast<std::size_t>(member)];
  if (--found->n_calls_of_all == 0) name.deferred_errors.erase(found);
  if (!has_deferred_duplicate(name)) std::erase(deferred_duplicates_, &name);
  return true;
}

bool Failures::drop(NameState& name, int member) {
  for (NameState::DeferredError& error : name.deferred_errors) error.drop(member);
  const bool is_less =
      std::erase_if(name.deferred_errors, [](const auto& error) { return error.n_calls_of_all == 0; }) > 0;
  if (is_less && !has_deferred_duplicate(name)) std::erase(deferred_duplicates_, &name);
  return is_less;
}

// Other members need not make the duplicate call, too. Once all members have taken part in a negotiation that opened
// after the duplicate, the members that have not made it will not make it: their next calls are ordinary ones.
std::vector<NameState*> Failures::expire_duplicates(std::uint64_t n_failed_before) {
  std::vector<NameState*> expired;
  for (NameState* name : std::exchange(deferred_duplicates_, {})) {
    std::erase_if(name->deferred_errors, [&](const NameState::DeferredError& error) {
      return error.is_duplicate && error.n_failed_before < n_failed_before;
    });
    (has_deferred_duplicate(*name) ? deferred_duplicates_ : expired).push_back(name);
  }
  return expired;
}

void Failures::add(NameState& name, ErrorKind kind, const std::string& text, const std::vector<std::int32_t>& members) {
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
