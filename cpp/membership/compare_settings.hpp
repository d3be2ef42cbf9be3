// compare_settings: that what must be set to the same value on all ranks of a world is.
#pragma once

#include <string>

#include "base/status.hpp"
#include "membership/common_settings.hpp"

namespace ciranda {

// Mismatch, which says what differs `here` from `there`, on the rank of that name.
Status compare_settings(const CommonSettings& here, const CommonSettings& there, const std::string& name);

}  // namespace ciranda
