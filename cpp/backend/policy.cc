#include "backend/policy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "collective/transfer_order.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kLeastSegment = 4096;         // all segments are multiples, as CIRANDA_SEGMENT_BYTES must be
constexpr std::array<std::size_t, 2> kParts{2, 4};  // fractions of the usual segment that may be better

// The segment that is forwarded: small enough to fill a chain soon, large enough to need few system calls.
constexpr std::size_t kPassedOnBytes = 64 << 10;

// More would cost memory on every rank, and the kernel's buffers of a few connections hold no more.
constexpr std::uint64_t kMostUnderWay = 8 << 20;

}  // namespace

NativeOptions native_options(const Config& config) {
  NativeOptions options;
  if (config.one_shot_bytes >= 0) options.one_shot_bytes = static_cast<std::size_t>(config.one_shot_bytes);
  if (config.segment_bytes > 0) options.segment_bytes = static_cast<std::size_t>(config.segment_bytes);
  options.channel_segment_bytes = std::min(options.channel_segment_bytes, static_cast<std::size_t>(config.slot_bytes));
  options.algorithm = config.algorithm;
  options.rounds_to_bfloat16 = !config.wire_dtype.empty();
  options.tries_candidates = config.autotune;
  return options;
}

std::size_t middle_of_class(std::size_t n_bytes) { return std::bit_ceil(n_bytes) / 4 * 3; }

bool Policy::is_possible(const AlgorithmRow& row, Collective collective, Memory needs, std::size_t n_bytes) const {
  return row.collective == collective && row.needs == needs &&
         (row.is_possible == nullptr || row.is_possible(*this, n_bytes));
}

// The segment size without measurements.
std::size_t Policy::usual_segment(const AlgorithmRow& row) const {
  const std::size_t of_links = segment_of_long_links();
  switch (row.segments) {
    case Segments::kNone: return 0;
    case Segments::kSlots: return std::min(options.segment_bytes.value_or(slot_bytes), slot_bytes);
    case Segments::kBlocks: return options.segment_bytes.value_or(std::max(options.channel_segment_bytes, of_links));
    case Segments::kPassedOn: return options.segment_bytes.value_or(kPassedOnBytes);
    case Segments::kPairs: break;
  }
  if (options.segment_bytes) return *options.segment_bytes;
  // Two ranks wait for each other at the end of each block, without data of a third meanwhile, so large blocks are
  // best. Rounded data is half as large on the wire.
  return std::max(options.channel_segment_bytes * (n_ranks == 2 ? 2 : 1), of_links) * (rounding.is_on() ? 2 : 1);
}

// The inputs and results of kDepth blocks are in flight between ranks. Together they must fill the link until the
// answer to the first arrives.
std::size_t Policy::segment_of_long_links() const {
  const auto n_segments = 2 * TransferOrder::kDepth * static_cast<std::size_t>(std::max(n_ranks - 1, 1));
  return std::min(costs.bytes_under_way(), kMostUnderWay) / n_segments / kLeastSegment * kLeastSegment;
}

// REQUIRES: both are possible, and `later` is further down in the table.
bool Policy::is_better(const AlgorithmRow& later, const AlgorithmRow& earlier, std::size_t n_bytes) const {
  if (!options.algorithm.empty()) {
    if (earlier.name.ends_with(options.algorithm)) return false;
    if (later.name.ends_with(options.algorithm)) return true;
  }
  if (options.one_shot_bytes && earlier.is_one_shot) return n_bytes > *options.one_shot_bytes;
  return !costs.is_no_slower(usual(earlier), usual(later), n_bytes);
}

// Of a collective's rows, only those count that need the most of the available memory kinds.
Memory Policy::needed(Collective collective) const {
  Memory most = Memory::kChannels;
  for (const AlgorithmRow& row : algorithms()) {
    if (row.collective == collective && row.needs <= available) most = std::max(most, row.needs);
  }
  return most;
}

Pick Policy::best(Collective collective, std::size_t n_bytes) const {
  const Memory needs = needed(collective);
  const auto is_candidate = [&](const AlgorithmRow& row) { return is_possible(row, collective, needs, n_bytes); };
  const std::span<const AlgorithmRow> rows = algorithms();
  auto best = std::find_if(rows.begin(), rows.end(), is_candidate);
  for (auto row = best + 1; row < rows.end(); ++row) {
    if (is_candidate(*row) && is_better(*row, *best, n_bytes)) best = row;
  }
  return usual(*best);
}

std::vector<Pick> Policy::all(Collective collective, std::size_t n_bytes) const {
  const Memory needs = needed(collective);
  std::vector<Pick> found;
  for (const AlgorithmRow& row : algorithms()) {
    if (!is_possible(row, collective, needs, n_bytes)) continue;
    found.push_back(usual(row));
    if (options.segment_bytes) continue;
    for (const std::size_t part : kParts) {
      const std::size_t shorter = usual_segment(row) / part / kLeastSegment * kLeastSegment;
      if (shorter >= kLeastSegment && shorter < middle_of_class(n_bytes)) found.push_back({&row, shorter});
    }
  }
  return found;
}

}  // namespace ciranda
