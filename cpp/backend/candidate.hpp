// Candidate: one way to carry a collective out. A plain value.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ciranda {

struct Candidate {
  std::string_view name;              // "shm two-shot"
  std::size_t segment_bytes = 0;      // what is moved at a time; 0: all at once
  std::optional<double> expected_us;  // what the cost model says, where there is something to choose
  std::optional<double> taken_us;     // what calls of this job took that tried it
  bool is_chosen = false;
  bool is_in_place = false;  // what `name` becomes where all ranks' tensors lie in memory that all have mapped
};

}  // namespace ciranda
