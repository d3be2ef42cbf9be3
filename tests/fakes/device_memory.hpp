// The memory of each device of the process.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "address_map.hpp"
#include "arena.hpp"
#include "types.hpp"

namespace ciranda::fakes {

// Named so that other processes find out whether it is still this one's.
std::string arena_name(std::uint64_t token);
// Of this process: drawn once.
std::uint64_t process_token();

Arena& arena_of(CUdevice device);
// Whether it is, or was, memory of a device of this process. For a signal handler: false also if it cannot tell.
bool is_device_address(const void* address);

// Returns null: out of memory.
std::shared_ptr<Range> allocate_device(CUdevice device, std::size_t n_bytes, std::string origin, bool can_be_exported);
// Gives the memory back. REQUIRES: that the address map has it no more.
void release_device(const Range& range);

}  // namespace ciranda::fakes
