// lent: arrays of MXNet in the memory of others, so that a result that the engine has allocated needs no copy.
//
// MXNet releases memory on any of its threads, also when the process ends, where Python must not be called. So the
// owners of released memory are kept here until they are fetched.
//
// Threads: any.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

// A new array of MXNet's at `data`, which must be valid until `owner` is given back. Null, with GetLastError(), if
// MXNet could not, or has no such element type.
Array lend(void* data, std::span<const std::int64_t> shape, ciranda_dtype dtype, void* owner);

// Fetches owners of memory that MXNet has released, as many as there is room for. Returns their number.
std::size_t fetch_given_back(std::span<void*> owners);

}  // namespace ciranda::mxnet
