// Host memory that streams use: pinned by cuMemHostAlloc, or registered. What is pinned, and registered memory that is
// mapped MAP_SHARED, streams use by a second mapping, so that the host can be kept away from it (host_pages.hpp).
//
// Threads: any.
#pragma once

#include <cstddef>
#include <memory>

#include "address_map.hpp"
#include "types.hpp"

namespace ciranda::fakes {

// Returns null: out of memory.
std::shared_ptr<Range> allocate_pinned(CUdevice device, std::size_t n_bytes);
void release_pinned(const Range& range);

CUresult register_host(CUdevice device, std::byte* memory, std::size_t n_bytes);
void unregister_host(const Range& range);

}  // namespace ciranda::fakes
