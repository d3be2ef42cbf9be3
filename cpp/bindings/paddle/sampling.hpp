// Sampling: selects the classes of a shard for a step: those of the batch and some others. The algorithm is that of
// src/ciranda/_frameworks/sampling.py, so that static programs and dygraph select the same classes.
//
// Threads: any.
//
// Called by ops.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ciranda::paddle_ops {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

inline std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

inline std::uint64_t sampling_state(std::int64_t seed, std::int64_t step, std::int64_t shard) {
  std::uint64_t state = 0;
  for (const std::int64_t number : {seed, step, shard}) {
    state = mixed(state + kGolden + static_cast<std::uint64_t>(number));
  }
  return state;
}

// Returns the selected positions of classes, ascending: those in `present` (ascending, without duplicates), and others
// until there are n_wanted.
inline std::vector<std::int64_t> sample_classes(std::int64_t n_classes, std::vector<std::int64_t> present,
                                                std::int64_t n_wanted, std::uint64_t state) {
  const auto n_present = static_cast<std::int64_t>(present.size());
  const std::int64_t n_others = std::min(n_wanted, n_classes) - n_present;
  if (n_others <= 0) return present;
  std::vector<std::pair<std::uint64_t, std::int64_t>> others;
  others.reserve(static_cast<std::size_t>(n_classes - n_present));
  auto next = present.begin();
  for (std::int64_t place = 0; place < n_classes; ++place) {
    if (next != present.end() && *next == place) {
      ++next;
    } else {
      others.emplace_back(mixed(state + (static_cast<std::uint64_t>(place) + 1) * kGolden), place);
    }
  }
  std::nth_element(others.begin(), others.begin() + (n_others - 1), others.end());
  for (std::int64_t index = 0; index < n_others; ++index) {
    present.push_back(others[static_cast<std::size_t>(index)].second);
  }
  std::sort(present.begin(), present.end());
  return present;
}

}  // namespace ciranda::paddle_ops
