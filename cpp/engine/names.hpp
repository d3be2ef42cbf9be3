// The names of this rank's requests.
#pragma once

#include "engine/auto_names.hpp"
#include "engine/names_in_use.hpp"

namespace ciranda {

struct Names {
  NamesInUse& in_use;
  AutoNames& automatic;
};

}  // namespace ciranda
