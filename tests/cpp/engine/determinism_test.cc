// The bits of a result depend on the inputs in rank order, the type, the op and the factors, and on nothing else: not
// on the transport, the sizes of slots, how they are written, the algorithm, fusion, the instruction set, the order in
// which tensors come, or the way by which they go on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "base/copy_bytes.hpp"
#include "engine/engine.hpp"
#include "engine/fake_driver.hpp"
#include "engine/guarded.hpp"
#include "engine/own_program.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "engine/worlds_test.hpp"
#include "kernels/reference.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using kernels::testing::ScopedLevel;
using testing::Guarded;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::request;
using testing::wait_at_home;
using testing::World;
using testing::WorldOptions;

constexpr std::array kTypes{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16, DataType::kFloat64};
constexpr std::array<std::size_t, 10> kCounts{1, 3, 17, 64, 500, 1001, 2048, 5003, 9000, 700};

struct ScopedStagingCopy {
  explicit ScopedStagingCopy(StagingCopy technique) { staging_choice().prescribe(technique); }
  ~ScopedStagingCopy() { staging_choice().prescribe(std::nullopt); }
  ScopedStagingCopy(const ScopedStagingCopy&) = delete;
  ScopedStagingCopy& operator=(const ScopedStagingCopy&) = delete;
};

// One tensor: what every rank contributes, and what is done with it.
struct DrawnTensor {
  DataType dtype;
  std::size_t count;
  ReduceOp op;
  double prescale;
  std::vector<Bytes> inputs;  // by rank
};

// Values that cancel: whether a small one survives depends on when the large ones meet.
Bytes cancelling_values(DataType dtype, std::size_t count, unsigned seed) {
  const double large = dtype == DataType::kFloat16 ? 0x1p13 : dtype == DataType::kFloat64 ? 0x1p60 : 0x1p40;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> small(-0.001, 0.001);
  Bytes bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t kind = random() % 4;
    const double value = kind == 0 ? large : kind == 1 ? -large : small(random);
    const auto as_float = static_cast<float>(value);
    const auto store = [&](auto stored) { std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored); };
    switch (dtype) {
      case DataType::kFloat16: store(kernels::testing::rounded(kernels::testing::kFloat16, as_float)); break;
      case DataType::kBFloat16: store(kernels::testing::rounded(kernels::testing::kBFloat16, as_float)); break;
      case DataType::kFloat32: store(as_float); break;
      default: store(value);
    }
  }
  return bytes;
}

std::vector<DrawnTensor> make_tensors(int size) {
  std::vector<DrawnTensor> tensors;
  for (const DataType dtype : kTypes) {
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      const ReduceOp op = i % 3 == 2 ? ReduceOp::kAverage : ReduceOp::kSum;
      DrawnTensor tensor{dtype, kCounts[i], op, i % 5 == 4 ? 0.3 : 1.0, {}};
      for (int rank = 0; rank < size; ++rank) {
        tensor.inputs.push_back(cancelling_values(dtype, kCounts[i], static_cast<unsigned>(rank)));
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// So dear that one shot is chosen for all that fits into a slot.
std::vector<std::optional<HostCosts>> costs_of_hosts_where_waiting_is_dear(int size) {
  HostCosts costs;
  costs.shared_round_ns = costs.channel_round_ns = costs.link_round_ns = 100'000'000;
  std::vector<std::optional<HostCosts>> all(static_cast<std::size_t>(size));
  all.back() = costs;
  return all;
}

// How the tensors are handed over.
struct Manner {
  bool fused;     // all in flight at once, held back to travel together; else one by one
  unsigned seed;  // of the order in which each rank submits; ranks differ where they may
};

// All results of one rank, in the order of the tensors.
std::vector<Bytes> reduce_all(Engine& engine, const std::vector<DrawnTensor>& tensors, const Manner& manner) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // One by one, ranks must agree on the order. In flight together they need not.
  std::mt19937 random(manner.seed * 100 + (manner.fused ? static_cast<unsigned>(engine.rank()) : 0));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Guarded> memory;
  for (const DrawnTensor& tensor : tensors) {
    memory.emplace_back(tensor.inputs[static_cast<std::size_t>(engine.rank())], Guarded::kAligned);
  }
  std::vector<Engine::OperationPtr> operations;
  for (const std::size_t i : order) {
    const DrawnTensor& tensor = tensors[i];
    Request r = request(Collective::kAllreduce, "t" + std::to_string(i), tensor.dtype,
                        {static_cast<std::int64_t>(tensor.count)}, memory[i].data());
    r.signature.op = tensor.op;
    r.signature.prescale = tensor.prescale;
    r.is_deferrable = manner.fused;
    r.is_awaited = !manner.fused;
    operations.push_back(submit_request(engine, std::move(r)));
    if (!manner.fused) {
      EXPECT_TRUE(wait_at_home(engine, operations.back()).ok());
    }
  }
  for (const auto& operation : operations) EXPECT_TRUE(wait_at_home(engine, operation).ok());
  std::vector<Bytes> results;
  for (const Guarded& each : memory) results.emplace_back(each.bytes().begin(), each.bytes().end());
  return results;
}

// What the specification says, in rank order.
std::vector<Bytes> expected_results(const std::vector<DrawnTensor>& tensors, int size, bool rotated = false) {
  std::vector<Bytes> all;
  for (const DrawnTensor& tensor : tensors) {
    auto inputs = tensor.inputs;
    if (rotated) std::rotate(inputs.begin(), inputs.begin() + 1, inputs.end());
    all.push_back(
        kernels::testing::expected({tensor.dtype, tensor.op, tensor.prescale, 1, size}, inputs, tensor.count));
  }
  return all;
}

bool are_the_same(const std::vector<Bytes>& left, const std::vector<Bytes>& right) {
  return std::ranges::equal(left, right, [](const Bytes& one, const Bytes& other) {
    return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
  });
}

class DeterminismTest : public testing::WorldsTest {
 protected:
  // All algorithms with all lengths of segments; chosen by the costs that are assumed, by such as were measured, and by
  // trials, or prescribed; fused up to two sizes.
  std::vector<WorldOptions> variants() const {
    std::vector<WorldOptions> all;
    for (const std::int64_t slot_bytes : {4096, 65536}) {
      for (const char* algorithm : {"", "one-shot", "two-shot", "by-hosts", "doubling"}) {
        if (algorithm == std::string("by-hosts") && layout() != Layout::kTwoHosts) continue;
        if (algorithm == std::string("doubling") && layout() == Layout::kArena) continue;
        for (const std::int64_t segment_bytes : {0, 4096, 16384}) {
          WorldOptions options = WorldsTest::options();
          options.fabric.slot_bytes = static_cast<std::size_t>(slot_bytes);
          options.config.slot_bytes = slot_bytes;
          options.config.algorithm = algorithm;
          options.config.segment_bytes = segment_bytes;
          options.config.fusion_threshold_bytes = all.size() % 2 == 0 ? 128 << 20 : 10'000;
          if (all.size() % 3 == 1) options.fabric.costs = costs_of_hosts_where_waiting_is_dear(size());
          all.push_back(options);
        }
      }
    }
    return all;
  }
};

TEST_P(DeterminismTest, TheBitsAreTheSameOnAllRanksAndInAllSettings) {
  const std::vector<DrawnTensor> tensors = make_tensors(size());
  const std::vector<Bytes> expected = expected_results(tensors, size());
  for (const WorldOptions& options : variants()) {
    World world(size(), options);
    unsigned seed = 0;
    for (const kernels::SimdLevel level : kernels::testing::levels()) {
      const ScopedLevel scoped(level);
      for (const bool fused : {true, false, true}) {
        const Manner manner{fused, ++seed};
        const StagingCopy technique = seed % 2 == 0 ? StagingCopy::kCached : StagingCopy::kPastCaches;
        const ScopedStagingCopy writing(technique);
        world.run([&](Engine& engine) {
          EXPECT_TRUE(are_the_same(reduce_all(engine, tensors, manner), expected))
              << "rank " << engine.rank() << ", slots of " << options.config.slot_bytes << ", "
              << options.config.algorithm << ", segments of " << options.config.segment_bytes << ", fusion up to "
              << options.config.fusion_threshold_bytes << ", " << (fused ? "fused, " : "one by one, ")
              << to_string(level) << ", written by " << to_string(technique);
        });
        if (HasFailure()) return;
      }
    }
  }
}

// The inputs are such that another order of the ranks, as a ring would have it, gives other bits: the test above would
// notice.
TEST_P(DeterminismTest, AnotherOrderOfRanksWouldShow) {
  if (size() < 3) GTEST_SKIP() << "a sum of two is the same either way";
  for (const DrawnTensor& tensor : make_tensors(size())) {
    if (tensor.count < 100) continue;
    EXPECT_FALSE(are_the_same(expected_results({tensor}, size()), expected_results({tensor}, size(), true)))
        << to_string(tensor.dtype) << " " << tensor.count;
  }
}

#ifndef CIRANDA_SANITIZED
// Where the ranks' tensors lie, on the fake driver.
struct OnGpus {
  int size;
  Homes homes;
  const char* way;
};
constexpr std::array kOnGpus{OnGpus{2, Homes::kCuda, "peer"},
                             OnGpus{3, Homes::kCuda, "peer"},
                             OnGpus{7, Homes::kCuda, "peer"},
                             OnGpus{3, Homes::kCudaStaged, "staged"},
                             OnGpus{7, Homes::kCudaMixed, "peer"},
                             OnGpus{4, Homes::kCudaNccl, "nccl"},
                             OnGpus{3, Homes::kCudaWithoutKernels, "peer"}};

TEST(DeterminismDeathTest, TheBitsAreThoseOfTheHostByEachWayOfGpus) {
  for (const OnGpus& where : kOnGpus) {
    SCOPED_TRACE(std::to_string(where.size) + " ranks, " + where.way + ", " + to_string(where.homes));
    testing::expect_in_own_program([&where] {
      const testing::Watchdog watchdog("bits on GPUs");
      const std::vector<DrawnTensor> tensors = make_tensors(where.size);
      const std::vector<Bytes> expected = expected_results(tensors, where.size);
      WorldOptions options = testing::options_for(Layout::kArena, where.size);
      options.homes = where.homes;
      options.config.gpu_way = where.way;
      options.config.gpu_reduce = "ciranda";
      options.fabric.slot_bytes = 4096;
      options.config.slot_bytes = 4096;
      World world(where.size, options);
      for (const bool fused : {true, false}) {
        world.run([&](Engine& engine) {
          EXPECT_TRUE(are_the_same(reduce_all(engine, tensors, {fused, 1}), expected))
              << "rank " << engine.rank() << (fused ? ", fused" : ", one by one");
        });
      }
      // The memory in which ranks find each other's tensors on GPUs.
      const bool meets_on_gpus = where.homes == Homes::kCuda || where.homes == Homes::kCudaNccl;
      EXPECT_EQ(testing::n_fake_calls("cuMemAlloc") > 0, meets_on_gpus);
    });
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Worlds, DeterminismTest,
                         ::testing::Combine(::testing::Values(2, 3, 4, 7), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "ranks" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ciranda
