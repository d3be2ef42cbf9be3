// references_left: who forgets to give references back keeps the engine's memory and connections. Debug builds say so
// when a world is left (references_left.cc); others look at nothing (no_references_left.cc).
#pragma once

#include "capi/handles.hpp"

namespace ciranda::capi {

// Warns if, a little after the world was left, there are more references than the caller's and those of bindings that
// keep one until they end. Calls that are under way give theirs back soon, as everything fails now.
void tell_references_left(const ciranda_context& context);

// Whether this build tells.
bool tells_references_left();

}  // namespace ciranda::capi
