// lent: MXNet's arrays in memory of other owners, so that a result that the engine has allocated needs no copy.
//
// MXNet releases memory on any of its threads, even when the process ends and Python must not be called. So the owners
// of released memory are kept here until Python fetches them.
//
// Threads: any.
//
// Called by plugin.cc.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

// Creates an array of MXNet's at `data`, which must be valid until fetch_given_back() returns `owner`. Null on failure,
// for example if MXNet has no such element type; GetLastError() has the reason.
Array lend(void* data, std::span<const std::int64_t> shape, ciranda_dtype dtype, void* owner);

// Fetches owners of memory that MXNet has released, at most owners.size(). Returns their number.
std::size_t fetch_given_back(std::span<void*> owners);

}  // namespace ciranda::mxnet
