// AgreementLimits: the sizes up to which ranks agree on a blocking call by a direct round, without the log, and the
// amounts that the log gathers before it continues. They affect speed only, never results. A plain value, made of the
// defaults here and the settings.
// Called by CoordinatorOptions, LaneLog, RoundsByMessages, SubmissionCoalescing and SpanningTree; pure.
#pragma once

#include <cstddef>

#include "base/config.hpp"

namespace ciranda {

struct AgreementLimits {
  // --- direct rounds; the lowest rank's values count

  // In shared memory: the input of one rank. Also limited by the room that there is (agree/round_rooms.hpp): 1 MiB
  // with two ranks, which both read in one pass; 16 KiB otherwise, because ranks should divide the work on larger
  // inputs.
  std::size_t memory_bytes = 1 << 20;
  // By messages: the inputs of all ranks together. With the algorithms for larger inputs each rank sends less (with two
  // ranks the same), but their data follows two messages of the log. Time of a direct round relative to the log,
  // between hosts at 1 Gbit/s: two thirds for 64 KiB in all, the same for 128 KiB. Two ranks on loopback: three
  // quarters for 64 KiB, the same for 128 KiB, twice for 256 KiB.
  std::size_t message_bytes = 128 << 10;
  // Each rank sends its input to every other: with more ranks, that takes longer than a message to the coordinator and
  // back.
  int message_ranks = 8;

  // --- the log

  // A planned group of this size keeps the wire busy for longer than one agreement takes, on every transport we know.
  std::size_t planned_group_bytes = 1 << 20;
  // While the wire is busy, a new entry is worth its overhead only if at least this much has gathered.
  std::size_t busy_batch_bytes = 4 << 20;
  // With priorities: the log is this far ahead of execution, and continues when half of it is done.
  std::size_t under_way_bytes = 4 << 20;
  // Submissions up to this size are coalesced (progress/submission_coalescing.hpp): more takes longer than an
  // iteration.
  std::size_t left_bytes = 256 << 10;
};

inline AgreementLimits agreement_limits(const Config& config) {
  AgreementLimits limits;
  if (!config.wire_dtype.empty()) limits.message_bytes /= 2;  // the algorithms send half as many bytes
  if (config.direct_bytes >= 0)
    limits.memory_bytes = limits.message_bytes = static_cast<std::size_t>(config.direct_bytes);
  return limits;
}

}  // namespace ciranda
