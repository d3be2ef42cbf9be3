// The algorithm that a backend chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "backend/native.hpp"

namespace ciranda::testing {

inline std::string_view chosen(const NativeBackend& backend, Collective collective, std::size_t n_bytes) {
  const std::vector<Candidate> all = backend.candidates(collective, n_bytes);
  const auto found = std::find_if(all.begin(), all.end(), [](const Candidate& each) { return each.is_chosen; });
  return found == all.end() ? "none" : found->name;
}

}  // namespace ciranda::testing
