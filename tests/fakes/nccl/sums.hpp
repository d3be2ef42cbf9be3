// How NCCL combines: element by element, rounded to the type after each step, in any order of the ranks.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/nccl_api.hpp"

namespace ciranda::fakes {

// 0: there is no such type.
std::size_t size_of(cuda::ncclDataType_t type);

// Combines n_bytes of each input, in their order, to `to`, which may be one of them.
void combine(cuda::ncclDataType_t type, cuda::ncclRedOp_t op, std::span<const std::byte* const> inputs, std::byte* to,
             std::size_t n_bytes);

}  // namespace ciranda::fakes
