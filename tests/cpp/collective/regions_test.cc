// Allreduce of memory that the ranks have mapped from each other: the same results in every order of steps, whether
// all, some or none of the ranks have their tensors there; and where all have, nothing passes through slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collective/stepped_ranks.hpp"
#include "kernels/reference.hpp"
#include "repetitions.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using testing::Algorithm;
using testing::algorithms;
using testing::SteppedRanks;

constexpr std::size_t kRegionBytes = 256 << 10;
constexpr std::byte kUntouched{0xA5};

const Algorithm& two_shot() {
  return *std::find_if(algorithms().begin(), algorithms().end(),
                       [](const Algorithm& algorithm) { return algorithm.name == "ShmAllreduceTwoShot"; });
}

class RegionsTest : public ::testing::Test {
 protected:
  // One a rank, which all others map.
  void share(SteppedRanks& ranks) {
    segments_.clear();
    used_.assign(static_cast<std::size_t>(ranks.n_ranks()), 0);
    for (int owner = 0; owner < ranks.n_ranks(); ++owner) {
      segments_.push_back(std::make_shared<ShmSegment>(ShmSegment::create(kRegionBytes).value()));
      // Numbers need not be the same on all ranks.
      if (owner == 1) ranks.arena(owner).regions().add_own(segments_.back());
      const std::uint64_t region = ranks.arena(owner).regions().add_own(segments_.back());
      for (int other = 0; other < ranks.n_ranks(); ++other) {
        if (other == owner) continue;
        ranks.arena(other).regions().add_peer(owner, region,
                                              ShmSegment::open(segments_.back()->path(), kRegionBytes).value());
      }
      ranks.arena(owner).regions().use(region);
    }
  }

  // Memory of a rank, in its region.
  std::byte* take(int rank, std::size_t n_bytes) {
    std::size_t& used = used_[static_cast<std::size_t>(rank)];
    std::byte* memory = segments_[static_cast<std::size_t>(rank)]->memory().data() + used;
    used += n_bytes;
    EXPECT_LE(used, kRegionBytes);
    return memory;
  }

  std::vector<std::shared_ptr<ShmSegment>> segments_;
  std::vector<std::size_t> used_;
};

struct SharedCase {
  std::vector<Plan> plans;                // by rank
  std::vector<Bytes> own;                 // memory of what is not in a region
  std::vector<Bytes> results;             // ... and for the results of what is staged
  std::vector<std::uint64_t> n_in_place;  // bytes in a region, by rank
  Bytes expected;
  bool are_all_shared = true;

  Bytes result(std::size_t rank) const {
    Bytes bytes;
    for (const auto& piece : plans[rank].output.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes;
  }
};

class Cases : public RegionsTest {
 protected:
  // Pieces of whole elements, anywhere in memory; now and then the average is of some ranks only.
  SharedCase make(int n_ranks, std::mt19937_64& random, bool all_shared) {
    Plan common;
    common.collective = Collective::kAllreduce;
    common.dtype = random() % 2 == 0 ? DataType::kFloat32 : DataType::kBFloat16;
    common.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
    common.prescale = random() % 2 == 0 ? 1.0 : 0.5;
    common.n_average = n_ranks;
    const bool is_partial = !all_shared && random() % 5 == 0;
    if (is_partial) common.contributors = {n_ranks - 1};
    const std::size_t element = size_of(common.dtype);
    std::vector<std::size_t> pieces(1 + random() % 6);
    for (std::size_t& piece : pieces) piece = 1 + random() % 1500;
    const std::size_t count = std::accumulate(pieces.begin(), pieces.end(), std::size_t{0});
    common.n_bytes = count * element;
    const auto inputs = kernels::testing::make_inputs(common.dtype, static_cast<std::size_t>(n_ranks), count, random());
    SharedCase c;
    c.are_all_shared = !is_partial;
    for (int rank = 0; rank < n_ranks; ++rank) {
      const Bytes& input = inputs[static_cast<std::size_t>(rank)];
      const bool is_shared = all_shared || random() % 4 != 0;
      c.are_all_shared &= is_shared;
      c.own.emplace_back(input.size());
      c.results.emplace_back(input.size());
      c.n_in_place.push_back(0);
      Plan plan = common;
      std::size_t at = 0;
      for (const std::size_t piece : pieces) {
        const bool is_small = piece != pieces.front() && piece < 300;
        const bool is_staged = is_shared && is_small && random() % 2 == 0;
        std::byte* memory =
            is_shared && !is_staged ? take(rank, piece * element + random() % 3 * element) : c.own.back().data() + at;
        std::memcpy(memory, input.data() + at, piece * element);
        plan.input.add(memory, piece * element);
        plan.output.add(is_staged ? c.results.back().data() + at : memory, piece * element);
        if (!is_staged) c.n_in_place.back() += piece * element;
        at += piece * element;
      }
      c.plans.push_back(std::move(plan));
    }
    const auto counted = is_partial ? std::vector<Bytes>{inputs.back()} : inputs;
    c.expected = kernels::testing::expected(common, counted, count);
    return c;
  }

  void expect_right(int n_ranks, std::uint64_t seed, bool all_shared) {
    std::mt19937_64 random(seed);
    SteppedRanks ranks(n_ranks, seed);
    share(ranks);
    for (int rank = 0; rank < n_ranks; ++rank) {
      std::fill_n(ranks.arena(0).slot(rank, 0), 2 * testing::kSlotBytes, kUntouched);
    }
    std::vector<SharedCase> cases;
    for (int i = 0; i < 5; ++i) cases.push_back(make(n_ranks, random, all_shared));
    for (const SharedCase& c : cases) {
      for (int rank = 0; rank < n_ranks; ++rank) ranks.add(rank, two_shot(), c.plans[static_cast<std::size_t>(rank)]);
    }
    ASSERT_TRUE(ranks.run());
    for (int rank = 0; rank < n_ranks; ++rank) {
      std::uint64_t n_bytes_in_place = 0;
      for (const SharedCase& c : cases) {
        EXPECT_EQ(c.result(static_cast<std::size_t>(rank)), c.expected);
        if (c.are_all_shared) n_bytes_in_place += c.n_in_place[static_cast<std::size_t>(rank)];
      }
      EXPECT_EQ(ranks.arena(rank).regions().n_bytes_in_place(), n_bytes_in_place);
      const std::byte* slots = ranks.arena(0).slot(rank, 0);
      const bool is_untouched =
          std::all_of(slots, slots + 2 * testing::kSlotBytes, [](std::byte byte) { return byte == kUntouched; });
      EXPECT_TRUE(is_untouched || !all_shared) << "bytes were copied";
    }
  }
};

TEST_F(Cases, CopyNothingWhereAllShare) {
  for (const int n_ranks : {2, 3, 4, 7}) {
    for (std::uint64_t seed = 0; seed < repetitions(20); ++seed) {
      SCOPED_TRACE(::testing::Message() << n_ranks << " ranks, seed " << seed);
      expect_right(n_ranks, seed, true);
    }
  }
}

TEST_F(Cases, AreRightWhoeverShares) {
  for (const int n_ranks : {2, 3, 4}) {
    for (std::uint64_t seed = 0; seed < repetitions(40); ++seed) {
      SCOPED_TRACE(::testing::Message() << n_ranks << " ranks, seed " << seed);
      expect_right(n_ranks, seed, false);
    }
  }
}

TEST_F(RegionsTest, FindOnlyWhatIsUsedAndWhole) {
  SharedRegions regions;
  const auto segment = std::make_shared<ShmSegment>(ShmSegment::create(8192).value());
  const std::byte* begin = segment->memory().data();
  const std::uint64_t region = regions.add_own(segment);
  EXPECT_FALSE(regions.find(begin, 1)) << "others have not mapped it yet";
  regions.use(region);
  ASSERT_TRUE(regions.find(begin + 100, 8092));
  EXPECT_EQ(regions.find(begin + 100, 8092)->offset, 100U);
  EXPECT_FALSE(regions.find(begin + 100, 8093));
  EXPECT_FALSE(regions.find(begin - 1, 1));
  EXPECT_FALSE(regions.find(begin + 8192, 0));
  EXPECT_TRUE(regions.memory(1, {region, 0, 1}).empty()) << "of nobody";
}

}  // namespace
}  // namespace ciranda
