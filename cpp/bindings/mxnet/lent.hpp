// lent: arrays of MXNet in the memory of others, so that a result that the engine has allocated needs no copy.
//
// MXNet gives memory back on any of its threads, also when the process ends, where Python must not be called. So the
// owners of what is given back are kept here until somebody fetches them.
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

// Fetches owners of memory that MXNet does not need any more, as many as there is room for. Returns how many.
std::size_t fetch_given_back(std::span<void*> owners);

}  // namespace ciranda::mxnet
