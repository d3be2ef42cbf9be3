// prepare(): checks a request when it is submitted, as far as one rank can, and fills in omitted fields. A request
// without a name gets its number later (auto_names.hpp), so that a refused call uses up no number: otherwise the
// numbers of different ranks would no longer match. Called by Engine before a request enters the queue; any thread.
#pragma once

#include "agree/process_sets.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

// Returns an error if the request is refused. `rank`: this rank, in the world. Any thread.
Status prepare(Request& request, int rank, const ProcessSets& sets);

}  // namespace ciranda
