// probe_pairs: measures the cost of handing data to other ranks of the host, with several partners in turn.
//
// A rank r measures with r ^ 1, r ^ 2, r ^ 4 and so on: its neighbours, and ranks with distant numbers, which are on
// other processor sockets if there are several. That takes 0.3 to 0.6 ms a partner, for log2(n) partners.
//
// Called by join_world(); one thread a member. All members call it at about the same time, before any other use of the
// arena; the next use begins when all have returned. It writes to slots and leaves arbitrary contents in them.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/pair_costs.hpp"
#include "transport/arena.hpp"

namespace ciranda {

// Returns costs by member; nothing for members that were no partner, or that had not arrived by the deadline.
// REQUIRES: the arena has slots, and they are zeroed.
std::vector<std::optional<PairCosts>> probe_pairs(const SharedArena& arena,
                                                  std::chrono::steady_clock::time_point deadline);

}  // namespace ciranda
