#include "agree/planned_group.hpp"

namespace ciranda {

void PlannedGroup::arrive(int member) {
  arrivals[static_cast<std::size_t>(member)] = true;
  ++n_arrived;
}

void PlannedGroup::close(Stage to) {
  if (n_arrived > 0) arrivals.assign(arrivals.size(), false);
  n_arrived = 0;
  stage = to;
}

bool PlannedGroup::is_whole(std::size_t most_bytes) {
  if (stage != Stage::kTouched) return true;
  if (kind == kNoKind) return false;
  n_bytes = 0;
  for (const NameState* name : names) {
    if (name->negotiation.is_open() || !name->deferred_errors.empty() || name->kind != kind) return false;
    n_bytes += name->agreed.n_bytes();
  }
  if (names.size() > 1 && n_bytes > most_bytes) return false;
  stage = Stage::kWhole;
  return true;
}

}  // namespace ciranda
