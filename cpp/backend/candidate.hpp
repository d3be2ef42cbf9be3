// Candidate: one way to carry a collective out. A plain value.
#pragma once

#include <optional>
#include <string_view>

namespace ciranda {

struct Candidate {
  std::string_view name;              // "shm two-shot"
  std::optional<double> expected_us;  // what the cost model says, where there is something to choose
  bool is_chosen = false;
};

}  // namespace ciranda
