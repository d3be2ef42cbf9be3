// The names of this rank's requests.
#pragma once

#include "engine/auto_names.hpp"
#include "negotiate/persistent_ops.hpp"

namespace ciranda {

struct Names {
  PersistentOps& ops;
  AutoNames& automatic;
};

}  // namespace ciranda
