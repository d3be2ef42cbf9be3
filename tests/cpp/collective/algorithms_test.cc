// Every algorithm, its ranks stepped on one thread in seeded orders: right results, no deadlock, and who is waited for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "collective/stepped_ranks.hpp"
#include "kernels/reference.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using testing::Algorithm;
using testing::algorithms;
using testing::kSlotBytes;
using testing::SteppedRanks;

// Random numbers; where everybody takes part, nobody has less than there is to have.
struct Draw : std::mt19937_64 {
  explicit Draw(std::uint64_t seed, bool everybody_takes_part = false)
      : std::mt19937_64(seed), everybody(everybody_takes_part) {}
  bool everybody;

  // Often nothing, else anything up to `most`.
  std::size_t amount(std::size_t most) {
    if (everybody) return most;
    return (*this)() % 4 == 0 ? 0 : (*this)() % (most + 1);
  }
};

// One collective of all ranks: what each contributes and should get, its memory, and its plan.
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
std::vector<std::size_t> cut(std::size_t count, Draw& random) {
  std::vector<std::size_t> pieces;
  while (count > 0) {
    const std::size_t piece =
        random() % 5 == 0 ? 0 : std::min<std::size_t>(1 + random() % (random() % 2 == 0 ? 9 : 900), count);
    pieces.push_back(piece);
    count -= piece;
  }
  return pieces;
}

void fill_plans(Case& c, std::size_t element_bytes, Draw& random, const Plan& common) {
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

Bytes random_bytes(std::size_t n_bytes, Draw& random) {
  Bytes bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Some of the ranks, in order, at least one; often none named, which means all.
std::vector<int> some_ranks(int n_ranks, Draw& random) {
  std::vector<int> some;
  if (random.everybody || random() % 2 == 0) return some;
  for (int rank = 0; rank < n_ranks; ++rank) {
    if (random() % 3 != 0) some.push_back(rank);
  }
  if (some.empty()) some.push_back(static_cast<int>(random() % static_cast<unsigned>(n_ranks)));
  return some;
}

std::size_t n_named(const std::vector<int>& ranks, int n_ranks) {
  return ranks.empty() ? static_cast<std::size_t>(n_ranks) : ranks.size();
}

// What is common to the reductions.
Plan random_reduction(Collective collective, int n_ranks, Draw& random) {
  constexpr std::array kTypes{DataType::kFloat32, DataType::kBFloat16, DataType::kInt64, DataType::kUInt8};
  Plan plan;
  plan.collective = collective;
  plan.dtype = kTypes[random() % kTypes.size()];
  plan.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
  plan.prescale = random() % 3 == 0 ? 0.3 : 1.0;
  plan.postscale = random() % 3 == 0 ? 0.5 : 1.0;
  plan.contributors = some_ranks(n_ranks, random);
  plan.n_average = static_cast<int>(n_named(plan.contributors, n_ranks));
  return plan;
}

Bytes reduced(const Plan& plan, const std::vector<Bytes>& inputs, std::size_t count) {
  std::vector<Bytes> counted;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (plan.is_contributor(static_cast<int>(rank))) counted.push_back(inputs[rank]);
  }
  return kernels::testing::expected(plan, counted, count);
}

Case make_allreduce(int n_ranks, std::size_t n_bytes, Draw& random) {
  Plan plan = random_reduction(Collective::kAllreduce, n_ranks, random);
  plan.receivers = some_ranks(n_ranks, random);
  const std::size_t count = std::max<std::size_t>(n_bytes / size_of(plan.dtype), 1);
  const auto inputs = kernels::testing::make_inputs(plan.dtype, static_cast<std::size_t>(n_ranks), count, random());
  Case c;
  for (const Bytes& input : inputs) c.ranks.push_back({input, Bytes(input.size()), {}});
  plan.n_bytes = inputs.front().size();
  fill_plans(c, size_of(plan.dtype), random, plan);
  for (int rank = 0; rank < n_ranks; ++rank) {
    Plan& own = c.ranks[static_cast<std::size_t>(rank)].plan;
    if (!plan.is_contributor(rank) && random() % 2 == 0) own.input = {};
    if (!plan.is_receiver(rank)) own.output = {};
    c.expected.push_back(plan.is_receiver(rank) ? reduced(plan, inputs, count) : Bytes{});
  }
  return c;
}

// Parts of different lengths, as whole elements, each in a few pieces, and sometimes in place.
Case make_reducescatter(int n_ranks, std::size_t n_bytes, Draw& random) {
  const Plan plan = random_reduction(Collective::kReducescatter, n_ranks, random);
  const std::size_t element_bytes = size_of(plan.dtype);
  const std::size_t longest = std::max<std::size_t>(n_bytes / element_bytes, 1);
  std::vector<std::vector<std::size_t>> pieces_of;  // by rank, in elements
  std::vector<std::size_t> begins;                  // by rank, in bytes
  std::size_t count = 0;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const std::size_t mine = rank == 1 ? longest : random.amount(longest);
    pieces_of.push_back(cut(mine, random));
    begins.push_back(count * element_bytes);
    count += mine;
  }
  const auto inputs = kernels::testing::make_inputs(plan.dtype, static_cast<std::size_t>(n_ranks), count, random());
  const Bytes all = reduced(plan, inputs, count);
  Case c;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    c.ranks.push_back({inputs[at], Bytes(inputs[at].size()), plan});
    Case::Rank& own = c.ranks.back();
    own.plan.n_bytes = longest * element_bytes;
    own.plan.input_by_rank.resize(pieces_of.size());
    const bool in_place = random() % 2 == 0;
    const bool has_input = plan.is_contributor(rank) || random() % 2 == 0;
    for (std::size_t to = 0; to < pieces_of.size(); ++to) {
      std::size_t offset = begins[to];
      for (const std::size_t piece : pieces_of[to]) {
        const std::size_t n = piece * element_bytes;
        if (has_input) own.plan.input_by_rank[to].add(own.input.data() + offset, n);
        if (to == at) own.plan.output.add((in_place ? own.input : own.output).data() + offset, n);
        offset += n;
      }
    }
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(begins[at]);
    c.expected.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(own.plan.output.n_bytes()));
  }
  return c;
}

Case make_broadcast(int n_ranks, std::size_t n_bytes, Draw& random) {
  Plan plan;
  plan.collective = Collective::kBroadcast;
  plan.root = static_cast<int>(random() % static_cast<unsigned>(n_ranks));
  plan.n_bytes = n_bytes;
  Case c;
  for (int rank = 0; rank < n_ranks; ++rank) c.ranks.push_back({random_bytes(n_bytes, random), Bytes(n_bytes), {}});
  c.expected.assign(c.ranks.size(), c.ranks[static_cast<std::size_t>(plan.root)].input);
  fill_plans(c, 1, random, plan);
  return c;
}

// Two pieces, as in a group of two tensors.
template <typename Byte>
PieceList<Byte> in_two_pieces(Byte* bytes, std::size_t n_bytes) {
  PieceList<Byte> pieces(bytes, n_bytes / 2);
  pieces.add(bytes + n_bytes / 2, n_bytes - n_bytes / 2);
  return pieces;
}

// Ranks contribute different amounts, some nothing; some receive nothing.
Case make_allgather(int n_ranks, std::size_t n_bytes, Draw& random) {
  Case c;
  Bytes all;
  const std::vector<int> receivers = some_ranks(n_ranks, random);
  for (int rank = 0; rank < n_ranks; ++rank) {
    const std::size_t mine = rank == 1 ? n_bytes : random.amount(n_bytes);
    c.ranks.push_back({random_bytes(mine, random), {}, {}});
    all.insert(all.end(), c.ranks.back().input.begin(), c.ranks.back().input.end());
  }
  for (std::size_t at = 0; at < c.ranks.size(); ++at) {
    Case::Rank& rank = c.ranks[at];
    rank.plan.collective = Collective::kAllgather;
    rank.plan.n_bytes = n_bytes;
    rank.plan.receivers = receivers;
    rank.plan.input.add(rank.input.data(), rank.input.size());
    rank.plan.output_by_rank.resize(c.ranks.size());
    if (!rank.plan.is_receiver(static_cast<int>(at))) {
      c.expected.emplace_back();
      continue;
    }
    rank.output.resize(all.size());
    c.expected.push_back(all);
    std::size_t begin = 0;
    for (std::size_t from = 0; from < c.ranks.size(); ++from) {
      const std::size_t n = c.ranks[from].input.size();
      rank.plan.output_by_rank[from] = in_two_pieces(rank.output.data() + begin, n);
      begin += n;
    }
  }
  return c;
}

// Each rank has something else for each rank; some have nothing at all.
Case make_alltoall(int n_ranks, std::size_t n_bytes, Draw& random) {
  const auto n = static_cast<std::size_t>(n_ranks);
  std::vector<std::vector<Bytes>> parts(n, std::vector<Bytes>(n));  // [from][to]
  std::size_t longest = 0;
  for (std::size_t from = 0; from < n; ++from) {
    const bool is_silent = from != 1 && !random.everybody && random() % 4 == 0;
    for (std::size_t to = 0; to < n; ++to) {
      const bool is_long = (from == 1 && to == 0) || (from == 0 && to == 1);
      const std::size_t mine = is_long ? n_bytes : is_silent ? 0 : random.amount(n_bytes);
      parts[from][to] = random_bytes(mine, random);
      longest = std::max(longest, mine);
    }
  }
  Case c;
  for (std::size_t rank = 0; rank < n; ++rank) {
    Case::Rank own;
    Bytes expected;
    for (const Bytes& part : parts[rank]) own.input.insert(own.input.end(), part.begin(), part.end());
    for (const auto& from : parts) expected.insert(expected.end(), from[rank].begin(), from[rank].end());
    own.output.resize(expected.size());
    own.plan.collective = Collective::kAlltoall;
    own.plan.n_bytes = longest;
    const std::byte* input = own.input.data();
    std::byte* output = own.output.data();
    for (std::size_t other = 0; other < n; ++other) {
      own.plan.input_by_rank.push_back(in_two_pieces(input, parts[rank][other].size()));
      own.plan.output_by_rank.push_back(in_two_pieces(output, parts[other][rank].size()));
      input += parts[rank][other].size();
      output += parts[other][rank].size();
    }
    c.ranks.push_back(std::move(own));
    c.expected.push_back(std::move(expected));
  }
  return c;
}

Case make_case(const Algorithm& algorithm, int n_ranks, std::size_t n_bytes, Draw& random) {
  n_bytes = std::clamp<std::size_t>(n_bytes, 1, algorithm.max_bytes);
  switch (algorithm.collective) {
    case Collective::kAllreduce: return make_allreduce(n_ranks, n_bytes, random);
    case Collective::kReducescatter: return make_reducescatter(n_ranks, n_bytes, random);
    case Collective::kAlltoall: return make_alltoall(n_ranks, n_bytes, random);
    case Collective::kBroadcast: return make_broadcast(n_ranks, n_bytes, random);
    default: return make_allgather(n_ranks, n_bytes, random);
  }
}

void expect_right(const Case& c) {
  for (std::size_t rank = 0; rank < c.ranks.size(); ++rank) {
    const Case::Rank& at = c.ranks[rank];
    EXPECT_EQ(!at.plan.output_by_rank.empty() ? at.output : result_of(at), c.expected[rank]) << "rank " << rank;
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
  for (std::uint64_t seed = 0; seed < repetitions(12); ++seed) {
    Draw random(seed);
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

// Whether those that `rank` names, or those whom they name in turn, include the one that stands still.
bool leads_to(const SteppedRanks& ranks, int rank, int still) {
  std::vector<int> asked{rank};
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (ranks.is_done(asked[i])) continue;
    for (const int named : ranks.awaited(asked[i])) {
      if (named == still) return true;
      if (std::find(asked.begin(), asked.end(), named) == asked.end()) asked.push_back(named);
    }
  }
  return false;
}

// Not everybody has to do with everybody.
bool has_few_partners(std::string_view algorithm) {
  constexpr std::array<std::string_view, 5> kSuch{"DirectAllreduceByHosts", "DirectAllreduceByUnlikeHosts",
                                                  "DirectAllreduceDoubling", "TreeBroadcast", "ChainBroadcast"};
  return std::find(kSuch.begin(), kSuch.end(), algorithm) != kSuch.end();
}

// When one rank stands still, whoever is stuck names it, and no other that has done all it can. Who exchanges with some
// only may know no more than one that is stuck as well.
TEST_P(AlgorithmTest, NamesTheRankThatStandsStill) {
  for (int still = 0; still < n_ranks(); ++still) {
    Draw random(static_cast<std::uint64_t>(still), true);
    SteppedRanks ranks(n_ranks(), static_cast<std::uint64_t>(still));
    const std::size_t n_bytes = std::min(algorithm().max_bytes, 7 * kSlotBytes);
    const Case c = make_case(algorithm(), n_ranks(), n_bytes, random);
    for (int rank = 0; rank < n_ranks(); ++rank) {
      ranks.add(rank, algorithm(), c.ranks[static_cast<std::size_t>(rank)].plan);
    }
    ASSERT_FALSE(ranks.run([&](int rank) { return rank == still; }));
    int n_stuck = 0;
    for (int rank = 0; rank < n_ranks(); ++rank) {
      if (rank == still || ranks.is_done(rank)) continue;
      ++n_stuck;
      const auto awaited = ranks.awaited(rank);
      if (has_few_partners(algorithm().name)) {
        EXPECT_TRUE(leads_to(ranks, rank, still)) << "rank " << rank << ", still " << still;
        continue;
      }
      // A broadcast's receivers know only of the root, which in turn is held up by the one that does not read.
      const int root = c.ranks.front().plan.root;
      const bool is_receiver = algorithm().collective == Collective::kBroadcast && rank != root;
      EXPECT_EQ(awaited, std::vector<int>{is_receiver ? root : still}) << "rank " << rank << ", still " << still;
    }
    EXPECT_GT(n_stuck, algorithm().collective == Collective::kBroadcast ? 0 : n_ranks() - 2);
    ASSERT_TRUE(ranks.run()) << "it does not go on";
    expect_right(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmTest,
                         ::testing::Combine(::testing::Range(std::size_t{0}, algorithms().size()),
                                            ::testing::Values(2, 3, 4, 6, 7)),
                         [](const auto& test) {
                           return std::string(algorithms()[std::get<0>(test.param)].name) +
                                  std::to_string(std::get<1>(test.param)) + "ranks";
                         });

// Algorithms that use the arena share its sequence of chunks; those that do not, share the channels.
TEST(MixedAlgorithmsTest, FollowEachOtherInOneSession) {
  for (std::uint64_t seed = 0; seed < repetitions(40); ++seed) {
    Draw random(seed);
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
