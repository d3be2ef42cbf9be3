// The names of this rank's requests.
#pragma once

#include "agree/auto_names.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/process_sets.hpp"

namespace ciranda {

struct Names {
  PersistentOps ops{};
  AutoNames automatic{};

  // Gives a request its number, and takes the operation of its name. REQUIRES: as of AutoNames::number().
  PersistentOp* number(Request& request) {
    automatic.number(request);
    return ops.take(lane_id(request.process_set, request.lane), request.name);
  }
};

}  // namespace ciranda
