// NativeOptions: what the settings say about how plans are carried out. A plain value.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/config.hpp"

namespace ciranda {

// All the same on all ranks of a mesh.
struct NativeOptions {
  std::optional<std::size_t> one_shot_bytes;      // up to this size one shot, above not; none: as the costs say
  std::size_t channel_segment_bytes = 256 << 10;  // what is exchanged over channels at a time
  std::optional<std::size_t> segment_bytes;       // prescribed, of slots and of channels
  std::string algorithm;            // wherever possible, as a row of the policy's ends: "two-shot"; empty: by cost
  bool rounds_to_bfloat16 = false;  // float32 that is reduced among ranks that do not all share memory (rounding.hpp)
  bool tries_ways = true;           // now and then, to learn what they take

  bool prescribes() const { return one_shot_bytes || segment_bytes || !algorithm.empty(); }
};
NativeOptions native_options(const Config& config);

}  // namespace ciranda
