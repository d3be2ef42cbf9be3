// Calls with tensors on devices that are staged in chunks: their bits are those of the whole, wherever they are cut,
// and ranks in host memory cut alike.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "engine/conformance.hpp"
#include "engine/watchdog.hpp"
#include "execute/staged.hpp"

namespace ciranda {
namespace {

using kernels::testing::Bytes;
using namespace testing::conformance;
using testing::Guarded;
using testing::Homes;
using testing::Layout;
using testing::request;
using testing::submit;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr std::size_t kChunkBytes = 2048;

class ChunksTest : public ::testing::TestWithParam<std::tuple<int, Layout, Homes>> {
 protected:
  ChunksTest() : world_(size(), options()) {}

  static int size() { return std::get<0>(GetParam()); }
  static WorldOptions options() {
    const auto& [size, layout, homes] = GetParam();
    WorldOptions options = options_for(layout, size);
    options.fabric.slot_bytes = 4096;
    options.config.slot_bytes = 256;
    options.homes = homes;
    EXPECT_EQ(Staged::chunk_bytes(options.config), kChunkBytes);
    return options;
  }
  // One chunk, one element less and more, and several.
  static std::vector<std::size_t> counts(DataType dtype) {
    const std::size_t of_chunk = kChunkBytes / size_of(dtype);
    return {of_chunk - 1, of_chunk, of_chunk + 1, 2 * of_chunk, 5 * of_chunk + 3};
  }
  static Request request_of(Collective collective, DataType dtype, std::size_t count, const Operand& operand) {
    Request r = request(collective, "x", dtype, {static_cast<std::int64_t>(count)}, nullptr);
    r.memory = {const_cast<Operand&>(operand).memory()};
    return r;
  }
  static void make(Engine& engine, Request r) {
    const Status status = wait_at_home(engine, submit(engine, std::move(r)));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  const Watchdog watchdog_{"chunks"};
  World world_;
};

TEST_P(ChunksTest, AReductionHasTheBitsOfTheWhole) {
  for (const DataTypeInfo& type : kDataTypes) {
    for (const ReduceOpInfo& op : kReduceOps) {
      if (!accepts(op.op, type.dtype) || !op.is_elementwise) continue;
      const std::size_t several = counts(type.dtype).back();
      for (const std::size_t count : counts(type.dtype)) {
        if (count != several && op.op != ReduceOp::kSum) continue;
        const auto inputs =
            kernels::testing::make_inputs(type.dtype, static_cast<std::size_t>(size()), count, count + 1);
        const double prescale = accepts_factors(op.op, type.dtype) ? 0.3 : 1;
        const Bytes expected = kernels::testing::expected({type.dtype, op.op, prescale, 1, size(), {}}, inputs, count);
        world_.run([&](Engine& engine) {
          for (const bool in_place : {true, false}) {
            for (const Collective collective : {Collective::kAllreduce, Collective::kReduce}) {
              SCOPED_TRACE(std::string(type.name) + ", " + std::string(op.name) + ", " + std::to_string(count) +
                           " elements" + (in_place ? ", in place" : ""));
              const Bytes& input = inputs[static_cast<std::size_t>(engine.rank())];
              const Operand operand(input, Guarded::kMisaligned, in_place);
              Request r = request_of(collective, type.dtype, count, operand);
              r.signature.op = op.op;
              r.signature.prescale = prescale;
              const bool has_result = collective == Collective::kAllreduce || engine.rank() == size() - 1;
              if (collective == Collective::kReduce) {
                r.signature.root = size() - 1;
                if (!has_result) r.memory.front().output = nullptr;
              }
              make(engine, std::move(r));
              if (has_result) operand.expect(expected);
            }
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ChunksTest, ABroadcastHasTheBitsOfTheRoot) {
  for (int root = 0; root < size(); ++root) {
    for (const std::size_t count : counts(DataType::kInt8)) {
      const auto inputs = kernels::testing::make_inputs(DataType::kInt8, static_cast<std::size_t>(size()), count, 1);
      world_.run([&](Engine& engine) {
        for (const bool in_place : {true, false}) {
          const Operand operand(inputs[static_cast<std::size_t>(engine.rank())], Guarded::kMisaligned, in_place);
          Request r = request_of(Collective::kBroadcast, DataType::kInt8, count, operand);
          r.signature.root = root;
          make(engine, std::move(r));
          operand.expect(inputs[static_cast<std::size_t>(root)]);
        }
      });
      if (HasFailure()) return;
    }
  }
}

// Those of which each rank has a part of its own, which may be longer than that of others.
TEST_P(ChunksTest, RowsOfRanksAreWhereTheyBelong) {
  for (const std::size_t count : counts(DataType::kInt16)) {
    std::vector<Bytes> inputs;
    Bytes gathered;
    for (int rank = 0; rank < size(); ++rank) {
      const std::size_t n = count * static_cast<std::size_t>(rank + 1) / 2;
      inputs.push_back(kernels::testing::make_inputs(DataType::kInt16, 1, n, static_cast<unsigned>(rank)).front());
      gathered.insert(gathered.end(), inputs.back().begin(), inputs.back().end());
    }
    world_.run([&](Engine& engine) {
      const Bytes& input = inputs[static_cast<std::size_t>(engine.rank())];
      const Operand operand(input, Guarded::kMisaligned, true);
      Request r = request_of(Collective::kAllgather, DataType::kInt16, input.size() / 2, operand);
      r.memory.front().output = nullptr;
      const auto operation = submit(engine, std::move(r));
      const Status status = wait_at_home(engine, operation);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(testing::contents(operation->outputs().front()), gathered);
    });
    if (HasFailure()) return;
  }
}

// Tensors that are shorter and longer than a chunk, of two types, in flight together and as one group.
TEST_P(ChunksTest, TensorsThatTravelTogetherAreCutTogether) {
  const std::vector<std::size_t> lengths{1, 100, 700, 0, 5000, 3, 256, 1025};
  const auto dtype_of = [](std::size_t i) { return i % 3 == 1 ? DataType::kFloat16 : DataType::kFloat64; };
  std::vector<std::vector<Bytes>> inputs;
  std::vector<Bytes> expected;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    inputs.push_back(kernels::testing::make_inputs(dtype_of(i), static_cast<std::size_t>(size()), lengths[i], i));
    expected.push_back(
        kernels::testing::expected({dtype_of(i), ReduceOp::kAverage, 1, 1, size(), {}}, inputs.back(), lengths[i]));
  }
  const auto sum = [&](std::size_t i, const Operand& operand) {
    Request r = request_of(Collective::kAllreduce, dtype_of(i), lengths[i], operand);
    r.signature.op = ReduceOp::kAverage;
    return r;
  };
  world_.run([&](Engine& engine) {
    for (const bool is_group : {false, true, false}) {
      std::vector<Operand> operands;
      for (const auto& of_tensor : inputs) {
        operands.emplace_back(of_tensor[static_cast<std::size_t>(engine.rank())], Guarded::kAligned,
                              operands.size() % 2 == 0);
      }
      std::vector<Engine::OperationPtr> operations;
      Request group = sum(0, operands[0]);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        Request r = sum(i, operands[i]);
        if (is_group) {
          if (i == 0) continue;
          group.signature.tensors.push_back(r.signature.tensors.front());
          group.memory.push_back(r.memory.front());
          continue;
        }
        r.name = std::to_string(i);
        r.is_deferrable = true;
        operations.push_back(submit(engine, std::move(r)));
      }
      if (is_group) operations.push_back(submit(engine, std::move(group)));
      for (const auto& operation : operations) {
        const Status status = wait_at_home(engine, operation);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (std::size_t i = 0; i < operands.size(); ++i) operands[i].expect(expected[i]);
    }
  });
}

const auto kWorlds =
    ::testing::Values(std::tuple(1, Layout::kArena, Homes::kPaged), std::tuple(2, Layout::kArena, Homes::kMixed),
                      std::tuple(3, Layout::kTwoHosts, Homes::kPaged), std::tuple(4, Layout::kArena, Homes::kPaged),
                      std::tuple(4, Layout::kTwoHosts, Homes::kMixed));

std::string name_of_chunks(const ::testing::TestParamInfo<std::tuple<int, Layout, Homes>>& test) {
  const auto& [size, layout, homes] = test.param;
  return std::to_string(size) + "ranks" + to_string(layout) + testing::to_string(homes);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ChunksTest, kWorlds, name_of_chunks);

}  // namespace
}  // namespace ciranda
