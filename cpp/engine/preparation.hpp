// prepare(): what is done with a request when it is submitted, before anybody else sees it: it is checked, as far as
// this rank can, and what was left out is filled in. What has no name of its own gets its number later
// (auto_names.hpp): a call that is refused here uses up none, which would set ranks apart.
#pragma once

#include "agree/process_sets.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

// Not ok: it is refused. `rank`: this one, in the world. Any thread.
Status prepare(Request& request, int rank, const ProcessSets& sets);

}  // namespace ciranda
