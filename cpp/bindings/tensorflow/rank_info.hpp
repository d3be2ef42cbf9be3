// rank_info: the current rank of this process and the sizes of its groups, for ops in a graph.
// Called by ops.hpp and xla.hpp; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ciranda::tensorflow {

// Numbered as in src/ciranda/tensorflow/places.py.
enum class RankInfo : std::int64_t { kRank, kSize, kLocalRank, kLocalSize, kIsIncluded, kRankInSet };

struct Found {
  std::int32_t number;
  std::string problem;  // "" if there is none; else begins with "InvalidArgument: "
};

Found find_rank_info(RankInfo what, std::uint32_t process_set);

}  // namespace ciranda::tensorflow
