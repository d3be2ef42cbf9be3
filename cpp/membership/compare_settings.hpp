// compare_settings: what must be set to the same value on all ranks of a world.
#pragma once

#include <string>

#include "base/status.hpp"
#include "membership/bootstrap_messages.hpp"

namespace ciranda {

// Mismatch, which says what differs `here` from `there`, on the rank of that name.
Status compare_settings(const Endpoint& here, const Endpoint& there, const std::string& name);

}  // namespace ciranda
