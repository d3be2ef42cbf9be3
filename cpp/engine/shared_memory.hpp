// Engine::allocate_shared: memory for tensors that the ranks of a host combine where it lies, with no copy
// (SharedRegions).
//
// A collective of all ranks. Threads: one of each rank, which blocks. Failure: that of the collectives it is made of;
// where memory cannot be shared (several hosts, no room in /dev/shm) it is this process's own instead, on all ranks
// alike.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.hpp"
#include "engine/engine.hpp"
#include "transport/shared_regions.hpp"

namespace ciranda {

// `regions`: of the memory that all ranks share; null where they share none. What nobody needs any more serves again.
Result<SharedAllocation> allocate_shared(Engine& engine, const std::shared_ptr<SharedRegions>& regions,
                                         std::size_t n_bytes, const Engine::Interrupted& interrupted);

}  // namespace ciranda
