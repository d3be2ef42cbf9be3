#include "observe/recording.hpp"

#include <algorithm>

#include "observe/ticks.hpp"

namespace ciranda {

void TickClock::look() {
  const BothClocks best = both_clocks();
  const bool is_later =
      pairs_.empty() || (best.ticks > pairs_.back().ticks && best.nanoseconds > pairs_.back().nanoseconds);
  if (is_later) pairs_.push_back(best);
  if (pairs_.size() > kMost) pairs_.pop_front();
}

// Ticks before the first pair, or after the last, are extrapolated from the two nearest pairs.
std::int64_t TickClock::nanoseconds(std::uint64_t ticks) const {
  if (ticks == 0) return 0;
  if (pairs_.size() < 2) return pairs_.back().nanoseconds;
  auto to = pairs_.end() - 1;
  if (ticks < (to - 1)->ticks) {
    to = std::upper_bound(pairs_.begin() + 1, to, ticks,
                          [](std::uint64_t t, const BothClocks& pair) { return t < pair.ticks; });
  }
  const BothClocks& from = *(to - 1);
  const auto rate =
      static_cast<double>(to->nanoseconds - from.nanoseconds) / static_cast<double>(to->ticks - from.ticks);
  const auto offset = static_cast<double>(static_cast<std::int64_t>(ticks - from.ticks));
  return from.nanoseconds + static_cast<std::int64_t>(offset * rate);
}

bool Recording::read(Record& record) {
  RecordRing::Record raw;
  for (bool is_wanted = false; !is_wanted;) {
    if (n_read_ == n_known_) {
      n_known_ = ring_.n_written();
      if (n_read_ == n_known_) return false;
      clock_.look();
    }
    // A reader that was too late skips more records than necessary: otherwise the writer would overtake it again at
    // once.
    const std::uint64_t n_kept = ring_.capacity() - std::max<std::uint64_t>(1, ring_.capacity() / 8);
    const std::uint64_t n_written = ring_.n_written();
    if (n_written - n_read_ >= ring_.capacity()) {
      n_lost_ += n_written - n_kept - n_read_;
      n_read_ = n_written - n_kept;
      n_known_ = n_written;
      clock_.look();
    }
    if (!ring_.read(n_read_, raw)) continue;
    ++n_read_;
    is_wanted = wants_arrivals_ || !raw.call.arrived;
  }
  record.name = raw.call.name;
  record.collective = raw.call.collective;
  record.path = raw.stages.path;
  record.algorithm = raw.stages.algorithm;
  record.outcome = raw.call.outcome;
  record.process_set = raw.call.process_set;
  record.lane = raw.call.lane;
  record.n_bytes = raw.call.n_bytes;
  record.dtype = raw.call.dtype;
  record.arrived = raw.call.arrived;
  for (std::size_t i = 0; i < kStageCount; ++i) record.at_ns[i] = clock_.nanoseconds(raw.stages[static_cast<Stage>(i)]);
  return true;
}

}  // namespace ciranda
