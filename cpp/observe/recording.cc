#include "observe/recording.hpp"

#include <algorithm>

namespace ciranda {

bool Recording::read(Record& record) {
  RecordRing::Record raw;
  do {
    if (n_read_ == n_known_) {
      n_known_ = ring_.n_written();
      if (n_read_ == n_known_) return false;
      clock_.look();
    }
    // A reader that is too late goes on a little behind the writer, which would catch it up at once otherwise.
    const std::uint64_t n_kept = ring_.capacity() - std::max<std::uint64_t>(1, ring_.capacity() / 8);
    const std::uint64_t n_written = ring_.n_written();
    if (n_written - n_read_ >= ring_.capacity()) {
      n_lost_ += n_written - n_kept - n_read_;
      n_read_ = n_written - n_kept;
      n_known_ = n_written;
      clock_.look();
    }
  } while (!ring_.read(n_read_, raw));
  ++n_read_;
  record.name = raw.call.name;
  record.collective = raw.call.collective;
  record.path = raw.stages.path;
  record.outcome = raw.call.outcome;
  record.process_set = raw.call.process_set;
  record.lane = raw.call.lane;
  record.n_bytes = raw.call.n_bytes;
  for (std::size_t i = 0; i < kStageCount; ++i) record.at_ns[i] = clock_.nanoseconds(raw.stages[static_cast<Stage>(i)]);
  return true;
}

}  // namespace ciranda
