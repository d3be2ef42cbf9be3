// What the log says of a world that was joined, or left. Pure.
//
// Called by connect(), Engine and Lanes, if such messages are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "observe/counter_page.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// This rank's place, its address, and by what links it reaches the others.
std::string joined_text(const Mesh& mesh, const Config& config, std::uint64_t epoch, double seconds);

// For each host its ranks and cores.
std::vector<std::string> host_texts(const Mesh& mesh);

// How an allreduce of each size is executed. `way_of` names that for a number of bytes.
std::string ways_text(const std::function<std::string(std::size_t n_bytes)>& way_of);

// A process set that was added.
std::string set_text(std::uint32_t id, const std::vector<int>& ranks);

// What this rank has done since it joined.
std::string left_text(const CounterPage& page, double seconds);

}  // namespace ciranda
