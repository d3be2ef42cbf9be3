// How much is moved at a time, by what links have under way.
#include "backend/policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/cost_model.hpp"

namespace ciranda {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

HostCosts of_links(std::uint64_t one_way_ns) {
  HostCosts costs;
  costs.link_round_ns = one_way_ns;
  return costs;
}

struct Hosts {
  int n_ranks;
  std::uint64_t one_way_ns;
  std::uint64_t n_hosts = static_cast<std::uint64_t>(n_ranks);
  std::optional<std::size_t> prescribed = {};
};

// Of an allreduce of 16 MiB, where nothing was learned.
std::size_t segment_of(std::string_view algorithm, const Hosts& world) {
  NativeOptions options;
  options.segment_bytes = world.prescribed;
  const auto n_ranks = static_cast<std::uint64_t>(world.n_ranks);
  const CostModel costs(of_links(world.one_way_ns), {n_ranks, world.n_hosts, n_ranks / world.n_hosts});
  const Policy policy{{options, world.n_ranks, 512 << 10, true, true, {}}, costs, Memory::kChannels};
  const std::vector<Pick> all = policy.all(Collective::kAllreduce, 16 << 20);
  const auto found = std::ranges::find(all, algorithm, [](const Pick& each) { return each.row->name; });
  return found == all.end() ? 0 : found->segment_bytes;
}

TEST(PolicyTest, LongLinksAreFilledUntilAnAnswerComes) {
  EXPECT_EQ(segment_of("direct two-shot", {2, 30'000}), 512U << 10);
  EXPECT_EQ(segment_of("direct two-shot", {4, 30'000}), 256U << 10);
  // Two blocks, of each inputs and results to each of the others: 10 MB are cut to 8 MiB, 5 MB are not.
  EXPECT_EQ(segment_of("direct two-shot", {2, 4 * kMillisecond}), 2U << 20);
  EXPECT_EQ(segment_of("direct two-shot", {2, 20 * kMillisecond}), 2U << 20);
  EXPECT_EQ(segment_of("direct two-shot", {2, 2 * kMillisecond}), 5'000'000 / 4 / 4096 * 4096);
  EXPECT_EQ(segment_of("direct two-shot", {4, 20 * kMillisecond}), (8U << 20) / 12 / 4096 * 4096);
  EXPECT_EQ(segment_of("direct by-hosts", {4, 20 * kMillisecond, 2}), (8U << 20) / 12 / 4096 * 4096);
  EXPECT_EQ(segment_of("direct two-shot", {64, 20 * kMillisecond}), 256U << 10);
}

TEST(PolicyTest, NoLinkIsLongWithinAHostOrAgainstTheUsersWill) {
  EXPECT_EQ(segment_of("direct two-shot", {2, 20 * kMillisecond, 1}), 512U << 10);
  EXPECT_EQ(segment_of("direct two-shot", {2, 20 * kMillisecond, 2, 64 << 10}), 64U << 10);
}

}  // namespace
}  // namespace ciranda
