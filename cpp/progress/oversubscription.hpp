// How many ranks share the cores of this one's host.
#pragma once

#include "transport/mesh.hpp"

namespace ciranda {

// Whether they are more than the cores.
bool is_oversubscribed(const Mesh& mesh);

}  // namespace ciranda
