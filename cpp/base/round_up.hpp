// divide_up() and round_up(): the number of units (cache lines, pages, blocks) that hold something, and their total
// size.
// Called by agree/, backend/, collective/, engine/, execute/, fuse/ and transport/; pure.
#pragma once

#include <cstddef>

namespace ciranda {

// The fewest units that hold `n`. REQUIRES: that n + unit can be represented.
constexpr std::size_t divide_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit; }

// The least multiple of `unit` that is `n` or more. REQUIRES: that it can be represented.
constexpr std::size_t round_up(std::size_t n, std::size_t unit) { return divide_up(n, unit) * unit; }

}  // namespace ciranda
