// Kernels of the fake driver itself, beside the engine's twins, for tests that need some kernel.
//   plain_copy(to, from, n_bytes)    plain_add(to, from, n_bytes), of bytes    plain_trap(), an illegal address
#pragma once

#include <string_view>

#include "twins.hpp"

namespace ciranda::fakes {

// Returns null if there is no such kernel.
const Twin* find_plain_kernel(std::string_view name);

// The error that a kernel on this thread ended with since the last call; kSuccess is 0.
int take_kernel_error();

}  // namespace ciranda::fakes
