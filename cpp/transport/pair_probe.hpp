// probe_pairs: what it costs a rank to hand data to others of its host, measured with each of some of them in turn.
//
// A rank r measures with r ^ 1, r ^ 2, r ^ 4 and so on: neighbours, and ranks that are far away by number, which are on
// other sockets where any are. So it takes 0.3 to 0.6 ms a partner, and log2(n) of them.
//
// Threads: one a member; all members call it at about the same time, before anything else is done with the arena, and
// nothing else is until all have returned. Uses slots, and leaves anything in them.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/pair_costs.hpp"
#include "transport/arena.hpp"

namespace ciranda {

// By member; nothing of those that it did not measure with, or that had not come when the time was over.
// REQUIRES: the arena has slots, zeroed.
std::vector<std::optional<PairCosts>> probe_pairs(const SharedArena& arena,
                                                  std::chrono::steady_clock::time_point deadline);

}  // namespace ciranda
