// own_table(): the table of ciranda/table.h of this copy of the library. ciranda_get_table() is the same function for
// C; but if the program links another copy, Python's extension would find that one's by this name.
//
// Called by EngineHandle and other_engines.cc, and defined in table.cc; any thread.
#pragma once

#include "base/exported.hpp"
#include "ciranda/table.h"

namespace ciranda::capi {

CIRANDA_EXPORTED const ciranda_table& own_table();

}  // namespace ciranda::capi
