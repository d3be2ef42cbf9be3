#include "collective/host_parts.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>

namespace ciranda {
namespace {

// The tree that kernels.hpp specifies, over anything.
std::string combined(const std::vector<std::string>& inputs) {
  if (inputs.size() == 1) return inputs.front();
  const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(std::bit_ceil(inputs.size()) / 2);
  return "(" + combined({inputs.begin(), middle}) + " " + combined({middle, inputs.end()}) + ")";
}

std::string inputs_of(const RankRun& range) {
  std::vector<std::string> inputs;
  for (int rank = range.begin; rank < range.end; ++rank) inputs.push_back(std::to_string(rank));
  return combined(inputs);
}

void expect_the_tree(const std::vector<int>& host_of) {
  const HostParts found(runs_of(host_of));
  std::vector<std::string> has;
  for (const auto& of_host : found.parts) {
    for (const RankRun& part : of_host) has.push_back(inputs_of(part));
  }
  ASSERT_EQ(has.size(), found.n_parts);
  for (const HostParts::Step& step : found.steps) {
    std::vector<std::string> inputs;
    for (const std::size_t place : step.inputs) inputs.push_back(has[place]);
    has.push_back(combined(inputs));
  }
  EXPECT_EQ(has.back(), inputs_of({0, static_cast<int>(host_of.size())}));
}

TEST(HostParts, GiveTheTreeOfAllRanks) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int> host_of;
    const std::size_t most = 1 + random() % 12;
    for (int host = 0; host < 2 || random() % 4 != 0; ++host) {
      host_of.insert(host_of.end(), 1 + random() % most, host);
    }
    expect_the_tree(host_of);
  }
}

std::vector<int> hosts(const std::vector<int>& sizes) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(sizes[host]), static_cast<int>(host));
  }
  return host_of;
}

// As many parts as there must be: logarithmically many.
TEST(HostParts, AreFew) {
  const auto most = [](const std::vector<int>& sizes) { return HostParts(runs_of(hosts(sizes))).most_parts; };
  EXPECT_EQ(most({4, 4, 4}), 1U);
  EXPECT_EQ(most({8, 4}), 1U);
  EXPECT_EQ(most({8, 4, 2, 1}), 1U);
  EXPECT_EQ(most({4, 8}), 2U);
  EXPECT_EQ(most({6, 6}), 2U);
  EXPECT_EQ(most({6, 6, 6, 6}), 2U);
  EXPECT_EQ(most({7, 7}), 3U);
  EXPECT_EQ(most({1, 64}), 7U);
  // One pass over all, where that is the same.
  EXPECT_EQ(HostParts(runs_of(hosts({4, 4, 4}))).steps.size(), 1U);
  EXPECT_EQ(HostParts(runs_of(hosts({4, 4, 3}))).steps.size(), 1U);
  EXPECT_FALSE(HostParts(runs_of(hosts({1, 1, 1}))).are_fewer());
}

}  // namespace
}  // namespace ciranda
