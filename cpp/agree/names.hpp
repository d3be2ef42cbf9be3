// The names of this rank's requests.
#pragma once

#include "agree/auto_names.hpp"
#include "agree/persistent_ops.hpp"

namespace ciranda {

struct Names {
  PersistentOps& ops;
  AutoNames& automatic;
};

}  // namespace ciranda
