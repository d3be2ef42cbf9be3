// Every collective of the op table x every op x every element type that the tables accept, in worlds of several sizes
// and layouts: counts from none to several slots, aligned memory or not, in place or not, with and without factors.
//
// Allreduce is compared bit by bit with the kernels' reference (tests/cpp/kernels/reference.hpp), which knows the order
// and the single rounding, and, apart from that, with sums in long double within a stated tolerance.
#include "engine/conformance.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using namespace testing::conformance;
using testing::Guarded;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::request;
using testing::submit;
using testing::wait_at_home;

class ConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  ConformanceTest() : worlds_(size(), std::get<2>(GetParam())) {}

  int size() const { return std::get<0>(GetParam()); }
  DataType dtype() const { return std::get<1>(GetParam()); }
  std::size_t n_bytes(std::size_t count) const { return count * size_of(dtype()); }

  std::vector<Bytes> inputs(std::size_t count) const {
    return kernels::testing::make_inputs(dtype(), static_cast<std::size_t>(size()), count, count + 1);
  }

  // The scalar shape for one element, two dimensions for others.
  static Shape shape(std::size_t count) {
    if (count == 1) return {};
    return {static_cast<std::int64_t>(count), 1};
  }

  static std::string describe(Layout layout, std::size_t count, std::size_t misalignment, bool in_place) {
    return to_string(layout) + ", count " + std::to_string(count) + (misalignment != 0 ? ", unaligned" : "") +
           (in_place ? ", in place" : "");
  }

  // Where memory is shared, small calls are made as ranks do that wait for them too: then they meet, all but the first.
  static std::vector<std::tuple<std::size_t, bool, bool>> placements(Layout layout) {
    std::vector<std::tuple<std::size_t, bool, bool>> placements;
    for (const auto& [misalignment, in_place] : kPlacements) placements.emplace_back(misalignment, in_place, false);
    if (layout != Layout::kArena) return placements;
    for (const auto& [misalignment, in_place] : kPlacements) placements.emplace_back(misalignment, in_place, true);
    return placements;
  }

  Worlds worlds_;
};

TEST_P(ConformanceTest, Allreduce) {
  for (const ReduceOpInfo& op : kReduceOps) {
    if (!accepts(op.op, dtype()) || !op.is_elementwise) continue;
    for (const std::size_t count : counts(dtype())) {
      const std::vector<Bytes> all = inputs(count);
      for (const Factors& factors : kFactors) {
        if ((factors.prescale != 1 || factors.postscale != 1) && !accepts_factors(op.op, dtype())) continue;
        const Reduction reduction{dtype(), op.op, factors.prescale, factors.postscale, size(), {}};
        const Bytes expected = kernels::testing::expected(reduction, all, count);
        for (const Layout layout : kLayouts) {
          worlds_[layout].run([&](Engine& engine) {
            for (const auto& [misalignment, in_place, is_awaited] : placements(layout)) {
              SCOPED_TRACE(std::string(op.name) + ", " + describe(layout, count, misalignment, in_place) +
                           (is_awaited ? ", awaited" : ""));
              Operand operand(all[static_cast<std::size_t>(engine.rank())], misalignment, in_place);
              Request r = request(Collective::kAllreduce, std::string(op.name), dtype(), shape(count), nullptr);
              r.memory = {operand.memory()};
              r.is_awaited = is_awaited;
              r.signature.op = op.op;
              r.signature.prescale = factors.prescale;
              r.signature.postscale = factors.postscale;
              const Status status = wait_at_home(engine, submit(engine, std::move(r)));
              ASSERT_TRUE(status.ok()) << status.message();
              operand.expect(expected);
            }
          });
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ConformanceTest, Broadcast) {
  for (const int root : {0, size() / 2, size() - 1}) {
    for (const std::size_t count : counts(dtype())) {
      const std::vector<Bytes> all = inputs(count);
      for (const Layout layout : kLayouts) {
        worlds_[layout].run([&](Engine& engine) {
          for (const auto& [misalignment, in_place, is_awaited] : placements(layout)) {
            SCOPED_TRACE("root " + std::to_string(root) + ", " + describe(layout, count, misalignment, in_place) +
                         (is_awaited ? ", awaited" : ""));
            Operand operand(all[static_cast<std::size_t>(engine.rank())], misalignment, in_place);
            Request r = request(Collective::kBroadcast, "b" + std::to_string(root), dtype(), shape(count), nullptr);
            r.memory = {operand.memory()};
            r.is_awaited = is_awaited;
            r.signature.root = root;
            const Status status = wait_at_home(engine, submit(engine, std::move(r)));
            ASSERT_TRUE(status.ok()) << status.message();
            operand.expect(all[static_cast<std::size_t>(root)]);
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// How many rows each rank contributes: the same, its rank, only the last, only the first, none.
constexpr std::array<std::int64_t (*)(int rank, int size), 5> kRows{
    [](int, int) -> std::int64_t { return 3; }, [](int rank, int) -> std::int64_t { return rank; },
    [](int rank, int size) -> std::int64_t { return rank == size - 1 ? 2 : 0; },
    [](int rank, int) -> std::int64_t { return rank == 0 ? 5 : 0; }, [](int, int) -> std::int64_t { return 0; }};

TEST_P(ConformanceTest, Allgather) {
  for (const auto& rows : kRows) {
    for (const std::size_t row_count : counts(dtype())) {
      std::vector<Bytes> all;
      Bytes expected;
      std::int64_t n_rows = 0;
      for (int rank = 0; rank < size(); ++rank) {
        const auto count = static_cast<std::size_t>(rows(rank, size())) * row_count;
        all.push_back(kernels::testing::make_inputs(dtype(), 1, count, static_cast<std::uint64_t>(rank)).front());
        expected.insert(expected.end(), all.back().begin(), all.back().end());
        n_rows += rows(rank, size());
      }
      for (const Layout layout : kLayouts) {
        worlds_[layout].run([&](Engine& engine) {
          for (const std::size_t misalignment : {Guarded::kAligned, Guarded::kMisaligned}) {
            SCOPED_TRACE(describe(layout, row_count, misalignment, false));
            Guarded input(all[static_cast<std::size_t>(engine.rank())], misalignment);
            const auto width = static_cast<std::int64_t>(row_count);
            Request r =
                request(Collective::kAllgather, "g", dtype(), {rows(engine.rank(), size()), width}, input.data());
            r.memory.front().output = nullptr;
            auto operation = submit(engine, std::move(r));
            const Status status = wait_at_home(engine, operation);
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(operation->outputs().size(), 1U);
            const OutputBuffer& output = operation->outputs().front();
            EXPECT_EQ(output.shape, (Shape{n_rows, width}));
            ASSERT_EQ(output.n_bytes, expected.size());
            EXPECT_EQ(testing::contents(output), expected) << "wrong result";
            EXPECT_TRUE(input.is_intact() && input.holds(all[static_cast<std::size_t>(engine.rank())]));
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, ConformanceTest,
                         ::testing::Combine(::testing::Values(2, 4), ::testing::ValuesIn(all_types()),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(EverySize, ConformanceTest,
                         ::testing::Combine(::testing::Values(1, 7), ::testing::ValuesIn(kTypesBySize),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(EverySizeOnDevice, ConformanceTest, kEverySizeOnDevice, name_of);
INSTANTIATE_TEST_SUITE_P(MixedWithHost, ConformanceTest, kMixedWithHost, name_of);
#ifndef CIRANDA_SANITIZED
INSTANTIATE_TEST_SUITE_P(OnGpu, ConformanceTest, kOnGpu, name_of);
INSTANTIATE_TEST_SUITE_P(ByNccl, ConformanceTest, kByNccl, name_of);
#endif

// --- what has no element type of its own

class GroupConformanceTest : public ::testing::TestWithParam<GroupCase> {
 protected:
  GroupConformanceTest() : worlds_(size(), std::get<1>(GetParam())) {}
  static int size() { return std::get<0>(GetParam()); }
  Worlds worlds_;
};

// Nobody leaves a barrier before everybody has come.
TEST_P(GroupConformanceTest, Barrier) {
  for (const Layout layout : kLayouts) {
    std::atomic<int> n_arrived{0};
    worlds_[layout].run([&](Engine& engine) {
      for (int round = 1; round <= 50; ++round) {
        n_arrived.fetch_add(1);
        Request r;
        r.name = "barrier";
        r.signature.collective = Collective::kBarrier;
        ASSERT_TRUE(wait_at_home(engine, submit(engine, std::move(r))).ok());
        ASSERT_GE(n_arrived.load(), round * size());
      }
    });
  }
}

struct GroupOfTensors {
  Request request;
  std::vector<Operand> operands;
};

// All element types in one group, several sizes, in place and not, aligned and not.
std::vector<std::vector<Bytes>> group_inputs(int size, Collective collective) {
  std::vector<std::vector<Bytes>> tensors;
  for (const DataTypeInfo& row : kDataTypes) {
    if (collective == Collective::kAllreduce && !accepts(ReduceOp::kSum, row.dtype)) continue;
    for (const std::size_t count : {2UL, 0UL, 700UL}) {
      tensors.push_back(kernels::testing::make_inputs(row.dtype, static_cast<std::size_t>(size), count, count));
    }
  }
  return tensors;
}

GroupOfTensors make_group(Collective collective, int rank, const std::vector<std::vector<Bytes>>& tensors) {
  GroupOfTensors group;
  group.request.name = "group";
  group.request.signature.collective = collective;
  group.operands.reserve(tensors.size());
  std::size_t i = 0;
  for (const DataTypeInfo& row : kDataTypes) {
    if (collective == Collective::kAllreduce && !accepts(ReduceOp::kSum, row.dtype)) continue;
    for (int k = 0; k < 3; ++k, ++i) {
      const auto& [misalignment, in_place] = kPlacements[i % kPlacements.size()];
      const Bytes& input = tensors[i][static_cast<std::size_t>(rank)];
      group.operands.emplace_back(input, misalignment, in_place);
      const auto count = static_cast<std::int64_t>(input.size() / row.n_bytes);
      group.request.signature.tensors.push_back({row.dtype, {count}});
      group.request.memory.push_back(group.operands.back().memory());
    }
  }
  return group;
}

TEST_P(GroupConformanceTest, AllreduceOfEveryTypeAtOnce) {
  const auto tensors = group_inputs(size(), Collective::kAllreduce);
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      GroupOfTensors group = make_group(Collective::kAllreduce, engine.rank(), tensors);
      const std::vector<TensorSignature> signatures = group.request.signature.tensors;
      const Status status = wait_at_home(engine, submit(engine, std::move(group.request)));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        SCOPED_TRACE("tensor " + std::to_string(i) + " " + to_string(layout));
        const Reduction reduction{.dtype = signatures[i].dtype, .n_average = size()};
        group.operands[i].expect(kernels::testing::expected(reduction, tensors[i], count_of(signatures[i].shape)));
      }
    });
  }
}

TEST_P(GroupConformanceTest, BroadcastOfEveryTypeAtOnce) {
  const auto tensors = group_inputs(size(), Collective::kBroadcast);
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      const int root = size() - 1;
      GroupOfTensors group = make_group(Collective::kBroadcast, engine.rank(), tensors);
      group.request.signature.root = root;
      const Status status = wait_at_home(engine, submit(engine, std::move(group.request)));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        SCOPED_TRACE("tensor " + std::to_string(i) + " " + to_string(layout));
        group.operands[i].expect(tensors[i][static_cast<std::size_t>(root)]);
      }
    });
  }
}

TEST_P(GroupConformanceTest, AllgatherOfEveryTypeAtOnce) {
  const auto tensors = group_inputs(size(), Collective::kAllgather);
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      GroupOfTensors group = make_group(Collective::kAllgather, engine.rank(), tensors);
      for (TensorMemory& memory : group.request.memory) memory.output = nullptr;
      auto operation = submit(engine, std::move(group.request));
      ASSERT_TRUE(wait_at_home(engine, operation).ok());
      ASSERT_EQ(operation->outputs().size(), tensors.size());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        Bytes expected;
        for (const Bytes& input : tensors[i]) expected.insert(expected.end(), input.begin(), input.end());
        const OutputBuffer& output = operation->outputs()[i];
        ASSERT_EQ(output.n_bytes, expected.size());
        EXPECT_EQ(testing::contents(output), expected) << "tensor " << i;
      }
    });
  }
}

// --- sums apart from the reference of the kernels

long double value_at(DataType dtype, const std::byte* bytes, std::size_t i) {
  const auto load = [&](auto value) {
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
  };
  switch (dtype) {
    case DataType::kFloat16: return kernels::testing::widened(kernels::testing::kFloat16, load(std::uint16_t{}));
    case DataType::kBFloat16: return kernels::testing::widened(kernels::testing::kBFloat16, load(std::uint16_t{}));
    case DataType::kFloat32: return static_cast<long double>(load(float{}));
    default: return static_cast<long double>(load(double{}));
  }
}

struct Precision {
  DataType dtype;
  long double stored;       // half a unit in the last place of what is stored, relative
  long double accumulated;  // the same of what is added up
};
// 16-bit floats are added up in float32 and rounded once.
const std::array kPrecisions{Precision{DataType::kFloat16, 0x1p-11L, 0x1p-24L},
                             Precision{DataType::kBFloat16, 0x1p-8L, 0x1p-24L},
                             Precision{DataType::kFloat32, 0, 0x1p-24L}, Precision{DataType::kFloat64, 0, 0x1p-53L}};

Bytes random_floats(DataType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-4, 4);
  Bytes bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = uniform(random);
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

TEST_P(GroupConformanceTest, AveragesOfFloatsAreWithinOneRounding) {
  constexpr std::size_t kCount = 3001;
  constexpr double kPrescale = 0.7;
  for (const Precision& precision : kPrecisions) {
    std::vector<Bytes> all;
    for (int rank = 0; rank < size(); ++rank) {
      all.push_back(random_floats(precision.dtype, kCount, static_cast<unsigned>(rank)));
    }
    for (const Layout layout : kLayouts) {
      std::vector<Bytes> results = all;
      worlds_[layout].run([&](Engine& engine) {
        Bytes& result = results[static_cast<std::size_t>(engine.rank())];
        Guarded tensor(result, Guarded::kAligned);
        Request r = request(Collective::kAllreduce, "average", precision.dtype, {kCount}, tensor.data());
        r.signature.op = ReduceOp::kAverage;
        r.signature.prescale = kPrescale;
        ASSERT_TRUE(wait_at_home(engine, submit(engine, std::move(r))).ok());
        result.assign(tensor.bytes().begin(), tensor.bytes().end());
      });
      for (std::size_t i = 0; i < kCount; ++i) {
        long double sum = 0;
        long double magnitude = 0;
        for (const Bytes& input : all) {
          sum += kPrescale * value_at(precision.dtype, input.data(), i);
          magnitude += std::fabs(kPrescale * value_at(precision.dtype, input.data(), i));
        }
        const long double exact = sum / size();
        // One rounding for each input's scaling, each addition, the factors themselves, and the division.
        const long double n_roundings = 2 * size() + 3;
        const long double tolerance = n_roundings * precision.accumulated * magnitude / size() +
                                      precision.stored * std::fabs(exact) + 0x1p-25L * (precision.stored > 0 ? 1 : 0);
        ASSERT_LE(std::fabs(value_at(precision.dtype, results[0].data(), i) - exact), tolerance)
            << to_string(precision.dtype) << " " << i << " " << to_string(layout);
      }
      for (const Bytes& result : results) EXPECT_EQ(result, results[0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GroupConformanceTest, kGroupCases, name_of_group);
#ifndef CIRANDA_SANITIZED
INSTANTIATE_TEST_SUITE_P(OnGpu, GroupConformanceTest, kGroupsOnGpu, name_of_group);
#endif

static_assert(kNumCollectives == 15,
              "a new collective needs a conformance test: here, in rows_conformance_test.cc, ...");

}  // namespace
}  // namespace ciranda
