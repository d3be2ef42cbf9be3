// Every algorithm, its ranks stepped on one thread in seeded orders: right results, no deadlock, and who is waited for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "collective/stepped_ranks.hpp"
#include "kernels/reference.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using testing::Algorithm;
using testing::algorithms;
using testing::kSlotBytes;
using testing::SteppedRanks;

// One collective of all ranks: what each brings and should get, its memory, and its plan.
struct Case {
  struct Rank {
    Bytes input;
    Bytes output;
    Plan plan;
  };
  std::vector<Rank> ranks;
  std::vector<Bytes> expected;  // by rank
};

// The same pieces on all ranks, as fused tensors are: whole elements, some of them none.
std::vector<std::size_t> cut(std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> pieces;
  while (count > 0) {
    const std::size_t piece =
        random() % 5 == 0 ? 0 : std::min<std::size_t>(1 + random() % (random() % 2 == 0 ? 9 : 900), count);
    pieces.push_back(piece);
    count -= piece;
  }
  return pieces;
}

void fill_plans(Case& c, std::size_t element_bytes, std::mt19937_64& random, const Plan& common) {
  const auto pieces = cut(c.ranks.front().input.size() / element_bytes, random);
  for (Case::Rank& rank : c.ranks) {
    rank.plan = common;
    std::size_t at = 0;
    for (const std::size_t piece : pieces) {
      const bool in_place = random() % 2 == 0;  // a tensor's own affair: ranks need not agree
      rank.plan.input.add(rank.input.data() + at, piece * element_bytes);
      rank.plan.output.add((in_place ? rank.input : rank.output).data() + at, piece * element_bytes);
      at += piece * element_bytes;
    }
  }
}

Bytes result_of(const Case::Rank& rank) {
  Bytes result;
  for (const auto& piece : rank.plan.output.pieces()) result.insert(result.end(), piece.begin(), piece.end());
  return result;
}

Case make_allreduce(int n_ranks, std::size_t n_bytes, std::mt19937_64& random) {
  constexpr std::array kTypes{DataType::kFloat32, DataType::kBFloat16, DataType::kInt64, DataType::kUInt8};
  Plan plan;
  plan.collective = Collective::kAllreduce;
  plan.dtype = kTypes[random() % kTypes.size()];
  plan.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
  plan.postscale = random() % 3 == 0 ? 0.5 : 1.0;
  const std::size_t count = std::max<std::size_t>(n_bytes / size_of(plan.dtype), 1);
  const auto inputs = kernels::testing::make_inputs(plan.dtype, static_cast<std::size_t>(n_ranks), count, random());
  Case c;
  for (const Bytes& input : inputs) c.ranks.push_back({input, Bytes(input.size()), {}});
  c.expected.assign(inputs.size(), kernels::testing::expected(
                                       {plan.dtype, plan.op, plan.prescale, plan.postscale, n_ranks}, inputs, count));
  fill_plans(c, size_of(plan.dtype), random, plan);
  return c;
}

Bytes random_bytes(std::size_t n_bytes, std::mt19937_64& random) {
  Bytes bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Case make_broadcast(int n_ranks, std::size_t n_bytes, std::mt19937_64& random) {
  Plan plan;
  plan.collective = Collective::kBroadcast;
  plan.root = static_cast<int>(random() % static_cast<unsigned>(n_ranks));
  Case c;
  for (int rank = 0; rank < n_ranks; ++rank) c.ranks.push_back({random_bytes(n_bytes, random), Bytes(n_bytes), {}});
  c.expected.assign(c.ranks.size(), c.ranks[static_cast<std::size_t>(plan.root)].input);
  fill_plans(c, 1, random, plan);
  return c;
}

// Ranks bring different amounts, some nothing.
Case make_allgather(int n_ranks, std::size_t n_bytes, std::mt19937_64& random) {
  Case c;
  Bytes all;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const std::size_t mine = rank == 1 ? n_bytes : random() % 3 == 0 ? 0 : random() % (n_bytes + 1);
    c.ranks.push_back({random_bytes(mine, random), {}, {}});
    all.insert(all.end(), c.ranks.back().input.begin(), c.ranks.back().input.end());
  }
  c.expected.assign(c.ranks.size(), all);
  for (Case::Rank& rank : c.ranks) {
    rank.output.resize(all.size());
    rank.plan.collective = Collective::kAllgather;
    rank.plan.input.add(rank.input.data(), rank.input.size());
    std::size_t at = 0;
    for (const Case::Rank& from : c.ranks) {
      OutputPieces pieces;
      const std::size_t half = from.input.size() / 2;
      pieces.add(rank.output.data() + at, half);
      pieces.add(rank.output.data() + at + half, from.input.size() - half);
      rank.plan.output_by_rank.push_back(pieces);
      at += from.input.size();
    }
  }
  return c;
}

Case make_case(const Algorithm& algorithm, int n_ranks, std::size_t n_bytes, std::mt19937_64& random) {
  n_bytes = std::clamp<std::size_t>(n_bytes, 1, algorithm.max_bytes);
  switch (algorithm.collective) {
    case Collective::kAllreduce: return make_allreduce(n_ranks, n_bytes, random);
    case Collective::kBroadcast: return make_broadcast(n_ranks, n_bytes, random);
    default: return make_allgather(n_ranks, n_bytes, random);
  }
}

void expect_right(const Case& c) {
  for (std::size_t rank = 0; rank < c.ranks.size(); ++rank) {
    const Case::Rank& at = c.ranks[rank];
    const bool gathered = at.plan.collective == Collective::kAllgather;
    EXPECT_EQ(gathered ? at.output : result_of(at), c.expected[rank]) << "rank " << rank;
  }
}

constexpr std::array<std::size_t, 8> kSizes{
    1, 8, 63, 700, kSlotBytes - 8, kSlotBytes, kSlotBytes + 8, 7 * kSlotBytes + 24};

class AlgorithmTest : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {
 protected:
  const Algorithm& algorithm() const { return algorithms()[std::get<0>(GetParam())]; }
  int n_ranks() const { return std::get<1>(GetParam()); }
};

// Several in a row, all sizes mixed: a rank may be a whole collective ahead of another.
TEST_P(AlgorithmTest, GivesTheRightBitsInEveryInterleaving) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    SteppedRanks ranks(n_ranks(), seed);
    std::vector<Case> cases;
    for (const std::size_t n_bytes : kSizes) cases.push_back(make_case(algorithm(), n_ranks(), n_bytes, random));
    std::shuffle(cases.begin(), cases.end(), random);
    for (const Case& c : cases) {
      for (int rank = 0; rank < n_ranks(); ++rank) {
        ranks.add(rank, algorithm(), c.ranks[static_cast<std::size_t>(rank)].plan);
      }
    }
    ASSERT_TRUE(ranks.run()) << "deadlock, seed " << seed;
    for (const Case& c : cases) expect_right(c);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// When one rank stands still, whoever is stuck names it, and no other that has done all it can.
TEST_P(AlgorithmTest, NamesTheRankThatStandsStill) {
  for (int still = 0; still < n_ranks(); ++still) {
    std::mt19937_64 random(static_cast<std::uint64_t>(still));
    SteppedRanks ranks(n_ranks(), static_cast<std::uint64_t>(still));
    const std::size_t n_bytes = std::min(algorithm().max_bytes, 7 * kSlotBytes);
    Case c = make_case(algorithm(), n_ranks(), n_bytes, random);
    while (algorithm().collective == Collective::kAllgather &&
           c.ranks[static_cast<std::size_t>(still)].input.size() < 2 * kSlotBytes) {
      c = make_case(algorithm(), n_ranks(), n_bytes, random);  // one in which it has something to bring
    }
    for (int rank = 0; rank < n_ranks(); ++rank) {
      ranks.add(rank, algorithm(), c.ranks[static_cast<std::size_t>(rank)].plan);
    }
    ASSERT_FALSE(ranks.run([&](int rank) { return rank == still; }));
    int n_stuck = 0;
    for (int rank = 0; rank < n_ranks(); ++rank) {
      if (rank == still || ranks.is_done(rank)) continue;
      ++n_stuck;
      const auto awaited = ranks.awaited(rank);
      // A broadcast's receivers know only of the root, which in turn is held up by the one that does not read.
      const int root = c.ranks.front().plan.root;
      const bool is_receiver = algorithm().collective == Collective::kBroadcast && rank != root;
      EXPECT_EQ(awaited, std::vector<int>{is_receiver ? root : still}) << "rank " << rank << ", still " << still;
    }
    EXPECT_GT(n_stuck, algorithm().collective == Collective::kAllreduce ? n_ranks() - 2 : 0);
    ASSERT_TRUE(ranks.run()) << "it does not go on";
    expect_right(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmTest,
                         ::testing::Combine(::testing::Range(std::size_t{0}, algorithms().size()),
                                            ::testing::Values(2, 3, 4, 7)),
                         [](const auto& test) {
                           return std::string(algorithms()[std::get<0>(test.param)].name) +
                                  std::to_string(std::get<1>(test.param)) + "ranks";
                         });

// Algorithms that use the arena share its sequence of chunks; those that do not, share the channels.
TEST(MixedAlgorithmsTest, FollowEachOtherInOneSession) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const int n_ranks = 2 + static_cast<int>(seed % 4);
    SteppedRanks ranks(n_ranks, seed);
    std::vector<const Algorithm*> chosen;
    std::vector<Case> cases;
    for (int i = 0; i < 24; ++i) {
      chosen.push_back(&algorithms()[random() % algorithms().size()]);
      cases.push_back(make_case(*chosen.back(), n_ranks, kSizes[random() % kSizes.size()], random));
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (int rank = 0; rank < n_ranks; ++rank) {
        ranks.add(rank, *chosen[i], cases[i].ranks[static_cast<std::size_t>(rank)].plan);
      }
    }
    ASSERT_TRUE(ranks.run()) << "deadlock, seed " << seed;
    for (const Case& c : cases) expect_right(c);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace ciranda
