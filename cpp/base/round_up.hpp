// round_up(): what a place, or the room for something, takes in whole units: cache lines, pages.
#pragma once

#include <cstddef>

namespace ciranda {

// The least multiple of `unit` that is `n` or more. REQUIRES: that it can be represented.
constexpr std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace ciranda
