#include "bindings/tensorflow/rank_info.hpp"

#include <algorithm>
#include <ciranda/native/context.hpp>
#include <vector>

namespace ciranda::tensorflow {
namespace {

std::vector<std::int32_t> ranks_of(const ciranda_context* context, std::uint32_t process_set) {
  std::vector<std::int32_t> ranks(ciranda_process_set_ranks(context, process_set, nullptr, 0));
  ranks.resize(std::min(ranks.size(), ciranda_process_set_ranks(context, process_set, ranks.data(), ranks.size())));
  return ranks;
}

std::int32_t number_of(RankInfo what, const ciranda_context* context, const std::vector<std::int32_t>& members) {
  const std::int32_t rank = ciranda_rank(context);
  const auto mine = std::find(members.begin(), members.end(), rank);
  const bool is_member = mine != members.end();
  switch (what) {
    case RankInfo::kRank: return rank;
    case RankInfo::kSize: return static_cast<std::int32_t>(members.size());
    case RankInfo::kLocalRank: return ciranda_local_rank(context);
    case RankInfo::kLocalSize: return ciranda_local_size(context);
    case RankInfo::kIsIncluded: return is_member ? 1 : 0;
    case RankInfo::kRankInSet: break;
  }
  return is_member ? static_cast<std::int32_t>(mine - members.begin()) : -1;
}

}  // namespace

Found find_rank_info(RankInfo what, std::uint32_t process_set) {
  const native::Context world;
  if (!world) return {0, std::string("InvalidArgument: ") + native::kNotInitialized};
  const std::vector<std::int32_t> members = ranks_of(world.get(), process_set);
  if (members.empty()) return {0, "InvalidArgument: there is no process set " + std::to_string(process_set)};
  return {number_of(what, world.get(), members), ""};
}

}  // namespace ciranda::tensorflow
