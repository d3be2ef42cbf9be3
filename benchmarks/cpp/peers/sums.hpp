// The sum of two vectors, for peers that leave the arithmetic on 16-bit types to their users: Ciranda's own kernel, so
// that no peer is slower than it need be.
//
// Pure; any thread; cannot fail.
#pragma once

#include <cstddef>

#include "system.hpp"

namespace peers {

// out may be a or b.
void add(DataType dtype, const void* a, const void* b, void* out, std::size_t count);

}  // namespace peers
