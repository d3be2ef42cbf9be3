// NativeOptions: the settings for the execution of plans. A plain value.
// Called by NativeBackend; types used by Backends, algorithms.hpp, CostModel and Policy.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/config.hpp"

namespace ciranda {

// All the same on all ranks of a mesh.
struct NativeOptions {
  std::optional<std::size_t> one_shot_bytes;      // one shot up to this size, never above; none: by cost
  std::size_t channel_segment_bytes = 256 << 10;  // exchanged over channels at a time
  std::optional<std::size_t> segment_bytes;       // prescribed, of slots and of channels
  std::string algorithm;            // prescribed where possible: the end of a row's name ("two-shot"); empty: by cost
  bool rounds_to_bfloat16 = false;  // float32 that is reduced among ranks that do not all share memory (rounding.hpp)
  bool tries_candidates = true;     // now and then, to measure them

  bool prescribes() const { return one_shot_bytes || segment_bytes || !algorithm.empty(); }
};
NativeOptions native_options(const Config& config);

}  // namespace ciranda
