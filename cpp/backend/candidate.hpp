// Candidate: one way to execute a collective on the CPU. A plain value.
// Used by NativeBackend, DataPlane and Engine.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ciranda {

struct Candidate {
  std::string_view name;              // "shm two-shot"
  std::size_t segment_bytes = 0;      // 0: all at once
  std::optional<double> expected_us;  // by the cost model, if there are several candidates
  std::optional<double> taken_us;     // measured in calls of this job that tried it
  bool is_chosen = false;
  bool is_in_place = false;  // `name` when all ranks' tensors lie in memory that all have mapped
};

}  // namespace ciranda
