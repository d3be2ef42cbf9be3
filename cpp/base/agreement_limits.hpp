// AgreementLimits: up to which size ranks agree on a blocking call directly, without the log, and how much the log
// gathers before it goes on. The same bits come of any of them; they say how fast. A plain value, made of the defaults
// here and the settings.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/config.hpp"

namespace ciranda {

struct AgreementLimits {
  // --- direct rounds; the lowest rank's values count

  // In shared memory: what one rank contributes. No more than there is room for (agree/round_places.hpp): 1 MiB of
  // two ranks, which both read in one pass; 16 KiB otherwise, as the work on more is better shared out.
  std::size_t memory_bytes = 1 << 20;
  // By messages: the inputs of all ranks together. The algorithms for larger ones have each rank send less (of two: as
  // much), but their data follows two messages of the log. Between hosts at 1 Gbit/s, 64 KiB in all took two thirds of
  // the time, 128 KiB as long; by two ranks on loopback 64 KiB took three quarters, 128 KiB as long, 256 KiB twice as
  // long.
  std::size_t message_bytes = 128 << 10;
  // What may travel with reports, and come back to each rank with the log: the coordinator sends it to each of them.
  std::size_t along_bytes(std::size_t n_ranks) const {
    return std::min(message_bytes, std::max<std::size_t>(8 << 10, (64 << 10) / n_ranks));
  }
  // Each sends its input to each other: more would send for longer than a message takes to the coordinator and back.
  int message_ranks = 8;

  // --- the log

  // A planned group of this size keeps the wire busy for longer than one agreement takes, on every transport we know.
  std::size_t planned_group_bytes = 1 << 20;
  // While the wire is busy at least this much must have gathered before another entry is worth its overhead.
  std::size_t busy_batch_bytes = 4 << 20;
  // Where there are priorities: as much is given out in advance, and no more until half of it is done.
  std::size_t under_way_bytes = 4 << 20;
  // What submissions leave to a later one (progress/submission_coalescing.hpp): more takes longer than an iteration.
  std::size_t left_bytes = 256 << 10;
};

inline AgreementLimits agreement_limits(const Config& config) {
  AgreementLimits limits;
  if (!config.wire_dtype.empty()) limits.message_bytes /= 2;  // the other way half as many bytes travel
  if (config.direct_bytes >= 0)
    limits.memory_bytes = limits.message_bytes = static_cast<std::size_t>(config.direct_bytes);
  return limits;
}

}  // namespace ciranda
