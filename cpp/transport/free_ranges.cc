#include "transport/free_ranges.hpp"

#include <iterator>

#include "base/round_up.hpp"

namespace ciranda {

FreeRanges::FreeRanges(std::size_t n_bytes) : n_bytes_(n_bytes), n_free_(n_bytes), ranges_{{0, n_bytes}} {}

std::optional<std::size_t> FreeRanges::take(std::size_t n_bytes, std::size_t alignment) {
  auto best = ranges_.end();
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const std::size_t skipped = round_up(range->first, alignment) - range->first;
    const bool has_room = skipped <= range->second && n_bytes <= range->second - skipped;
    if (has_room && (best == ranges_.end() || range->second < best->second)) best = range;
  }
  if (best == ranges_.end()) return std::nullopt;
  const std::size_t begin = best->first;
  const std::size_t end = begin + best->second;
  const std::size_t taken = round_up(begin, alignment);
  ranges_.erase(best);
  if (taken > begin) ranges_.emplace(begin, taken - begin);
  if (taken + n_bytes < end) ranges_.emplace(taken + n_bytes, end - taken - n_bytes);
  n_free_ -= n_bytes;
  return taken;
}

void FreeRanges::give_back(std::size_t offset, std::size_t n_bytes) {
  n_free_ += n_bytes;
  auto range = ranges_.emplace(offset, n_bytes).first;
  if (const auto next = std::next(range); next != ranges_.end() && offset + n_bytes == next->first) {
    range->second += next->second;
    ranges_.erase(next);
  }
  if (range == ranges_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second != offset) return;
  previous->second += range->second;
  ranges_.erase(range);
}

}  // namespace ciranda
