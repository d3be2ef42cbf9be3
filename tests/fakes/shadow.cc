#include "shadow.hpp"

#include <algorithm>
#include <iterator>

namespace ciranda::fakes {

std::optional<Conflict> Shadow::touch(const UseOf& use, std::size_t begin, std::size_t end, bool writes,
                                      const VectorClock& before) {
  split(begin);
  split(end);
  fill_gaps(begin, end);
  const auto first = segments_.lower_bound(begin);
  const auto last = segments_.lower_bound(end);
  for (auto at = first; at != last; ++at) {
    if (auto conflict = conflict_of(*at, writes, before)) return conflict;
  }
  if (writes) {
    segments_.erase(first, last);
    segments_[begin] = {end, use, {}};
    return std::nullopt;
  }
  for (auto at = first; at != last; ++at) {
    auto& reads = at->second.reads;
    std::erase_if(reads, [&](const UseOf& read) { return read->moment.stream == use->moment.stream; });
    reads.push_back(use);
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::find_unordered(const VectorClock& before) const {
  for (const auto& segment : segments_) {
    if (auto conflict = conflict_of(segment, true, before)) return conflict;
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::conflict_of(const Segments::value_type& segment, bool writes,
                                            const VectorClock& before) {
  const auto& [begin, uses] = segment;
  if (uses.write && !before.covers(uses.write->moment)) return Conflict{uses.write, true, begin, uses.end};
  if (!writes) return std::nullopt;
  const auto read = std::find_if_not(uses.reads.begin(), uses.reads.end(),
                                     [&](const UseOf& each) { return before.covers(each->moment); });
  if (read == uses.reads.end()) return std::nullopt;
  return Conflict{*read, false, begin, uses.end};
}

// Makes `at` the beginning of a segment, if one has it inside.
void Shadow::split(std::size_t at) {
  const auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return;
  const auto holder = std::prev(after);
  if (holder->first == at || holder->second.end <= at) return;
  Segment rest = holder->second;
  holder->second.end = at;
  segments_.emplace(at, std::move(rest));
}

// REQUIRES: segments end and begin at `begin` and `end`.
void Shadow::fill_gaps(std::size_t begin, std::size_t end) {
  auto next = segments_.lower_bound(begin);
  for (std::size_t at = begin; at < end;) {
    const std::size_t taken = next == segments_.end() ? end : std::min(next->first, end);
    if (taken > at) segments_.emplace_hint(next, at, Segment{taken, nullptr, {}});
    if (taken == end) return;
    at = next->second.end;
    ++next;
  }
}

}  // namespace ciranda::fakes
