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

bool owes_duplicate(const NamedRounds& name) {
  return std::any_of(name.owed.begin(), name.owed.end(), [](const auto& owed) { return owed.is_duplicate; });
}

}  // namespace

void Failures::fail(NamedRounds& name, const Members& members, ErrorKind kind, const std::string& text,
                    const std::optional<DuplicateCall>& duplicate, bool is_owed) {
  const int n_calls = duplicate && duplicate->was_pending ? 2 : 1;
  std::vector<std::int32_t> targets;
  NamedRounds::Owed owed{kind, text, duplicate.has_value(), n_failed_, {}, 0};
  owed.n_calls.resize(static_cast<std::size_t>(members.size()));
  for (int member = 0; member < members.size(); ++member) {
    int n_made = name.round.has_arrived(member) ? 1 : 0;
    if (duplicate && member == duplicate->member) n_made = n_calls;
    targets.insert(targets.end(), static_cast<std::size_t>(n_made), member);
    if (!is_owed || members.has_joined(member)) continue;  // it will not make the call
    owed.n_calls[static_cast<std::size_t>(member)] = static_cast<std::uint8_t>(n_calls - n_made);
    owed.n_calls_of_all += static_cast<std::size_t>(n_calls - n_made);
  }
  if (owed.n_calls_of_all > 0) name.owed.push_back(std::move(owed));
  const bool is_listed = std::find(owed_duplicates_.begin(), owed_duplicates_.end(), &name) != owed_duplicates_.end();
  if (owes_duplicate(name) && !is_listed) owed_duplicates_.push_back(&name);
  ++n_failed_;
  add(name, kind, text, targets);
}

bool Failures::answer(NamedRounds& name, int member) {
  const auto found = std::find_if(name.owed.begin(), name.owed.end(),
                                  [&](const auto& owed) { return owed.n_calls[static_cast<std::size_t>(member)] > 0; });
  if (found == name.owed.end()) return false;
  add(name, found->kind, found->text, {member});
  --found->n_calls[static_cast<std::size_t>(member)];
  if (--found->n_calls_of_all == 0) name.owed.erase(found);
  if (!owes_duplicate(name)) std::erase(owed_duplicates_, &name);
  return true;
}

bool Failures::forgive(NamedRounds& name, int member) {
  for (NamedRounds::Owed& owed : name.owed) owed.forgive(member);
  const bool is_less = std::erase_if(name.owed, [](const auto& owed) { return owed.n_calls_of_all == 0; }) > 0;
  if (is_less && !owes_duplicate(name)) std::erase(owed_duplicates_, &name);
  return is_less;
}

// Other members need not make the duplicate call, too. Once all members have taken part in a round that opened after
// the duplicate, the members that have not made it will not make it: their next calls are ordinary ones.
std::vector<NamedRounds*> Failures::forgive_duplicates(std::uint64_t n_failed_before) {
  std::vector<NamedRounds*> forgiven;
  for (NamedRounds* name : std::exchange(owed_duplicates_, {})) {
    std::erase_if(name->owed, [&](const NamedRounds::Owed& owed) {
      return owed.is_duplicate && owed.n_failed_before < n_failed_before;
    });
    (owes_duplicate(*name) ? owed_duplicates_ : forgiven).push_back(name);
  }
  return forgiven;
}

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
