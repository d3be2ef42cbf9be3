// The sum of two vectors, for peers without arithmetic on 16-bit types. It is Ciranda's own kernel, so that no peer is
// slower than necessary.
//
// Pure; any thread; cannot fail.
#pragma once

#include <cstddef>

#include "system.hpp"

namespace peers {

// `out` may be `a` or `b`.
void add(DataType dtype, const void* a, const void* b, void* out, std::size_t count);

}  // namespace peers
