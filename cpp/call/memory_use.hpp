// How much of the memory of a call's tensors is looked at, on this rank. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "call/request.hpp"

namespace ciranda {

// `ranks` are those of its process set, ascending; `rank` is this rank's, in the world. REQUIRES, here and below: the
// request is valid, and its splits are settled.

// Of the input.
std::size_t n_bytes_read(const Request& request, std::size_t tensor, int rank);
// Of the output: at most, where it is used if it fits. 0: what the caller gives is not looked at.
std::size_t n_bytes_written(const Request& request, std::size_t tensor, std::span<const int> ranks, int rank);

}  // namespace ciranda
