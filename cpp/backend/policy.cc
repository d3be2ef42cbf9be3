#include "backend/policy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "collective/two_rounds.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kLeastSegment = 4096;  // and all are whole ones, as those that CIRANDA_SEGMENT_BYTES prescribes
constexpr std::array<std::size_t, 2> kParts{2, 4};  // of the usual segment, that may be better

// What is passed on at a time: a chain is filled soon, and yet few calls of the system are made.
constexpr std::size_t kPassedOnBytes = 64 << 10;

// More takes memory of every rank, and the system keeps no more of a few connections.
constexpr std::uint64_t kMostUnderWay = 8 << 20;

}  // namespace

NativeOptions native_options(const Config& config) {
  NativeOptions options;
  if (config.one_shot_bytes >= 0) options.one_shot_bytes = static_cast<std::size_t>(config.one_shot_bytes);
  if (config.segment_bytes > 0) options.segment_bytes = static_cast<std::size_t>(config.segment_bytes);
  options.channel_segment_bytes = std::min(options.channel_segment_bytes, static_cast<std::size_t>(config.slot_bytes));
  options.algorithm = config.algorithm;
  options.rounds_to_bfloat16 = !config.wire_dtype.empty();
  options.tries_ways = config.autotune;
  return options;
}

std::size_t middle_of_class(std::size_t n_bytes) { return std::bit_ceil(n_bytes) / 4 * 3; }

bool Policy::is_possible(const AlgorithmRow& row, Collective collective, Memory needs, std::size_t n_bytes) const {
  return row.collective == collective && row.needs == needs &&
         (row.is_possible == nullptr || row.is_possible(*this, n_bytes));
}

// Where nothing was learned.
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
  // Two ranks wait for each other at the end of each block, and no third has anything for them meanwhile: they fare
  // best with large ones. What is rounded is half as large on its way.
  return std::max(options.channel_segment_bytes * (n_ranks == 2 ? 2 : 1), of_links) * (rounding.is_on() ? 2 : 1);
}

// Ranks have so many blocks on their way to each other, and of each the inputs and the results: together they are to
// fill the link until the answer to the first is there.
std::size_t Policy::segment_of_long_links() const {
  const auto n_segments = 2 * TwoRounds::kDepth * static_cast<std::size_t>(std::max(n_ranks - 1, 1));
  return std::min(costs.bytes_under_way(), kMostUnderWay) / n_segments / kLeastSegment * kLeastSegment;
}

// REQUIRES: both are possible, `later` stands further down in the table.
bool Policy::is_better(const AlgorithmRow& later, const AlgorithmRow& earlier, std::size_t n_bytes) const {
  if (!options.algorithm.empty()) {
    if (earlier.name.ends_with(options.algorithm)) return false;
    if (later.name.ends_with(options.algorithm)) return true;
  }
  if (options.one_shot_bytes && earlier.is_one_shot) return n_bytes > *options.one_shot_bytes;
  return !costs.is_no_slower(usual(earlier), usual(later), n_bytes);
}

// Of the rows of a collective, those that need the most of what there is count.
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
