// The collectives that cut tensors along rows or give results to one rank only (reducescatter, reduce, alltoall,
// gather, scatter) x every op x every element type that the tables accept, in worlds of several sizes and layouts.
//
// Reductions are compared bit by bit with the kernels' reference; what is only moved, with what was sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "engine/conformance.hpp"

namespace ciranda {
namespace {

using namespace testing::conformance;
using testing::Guarded;
using testing::home;
using testing::Homes;
using testing::kLayouts;
using testing::Layout;
using testing::request;
using testing::submit;
using testing::wait_at_home;

using Rows = std::vector<std::int64_t>;

struct Block {
  std::int64_t n_rows;
  std::int64_t width;
};

std::string describe(const Block& block) {
  return std::to_string(block.n_rows) + " rows of " + std::to_string(block.width);
}

Bytes slice(const Bytes& bytes, std::size_t begin, std::size_t n_bytes) {
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  return {at, at + static_cast<std::ptrdiff_t>(n_bytes)};
}

void expect_output(const Operation& operation, std::size_t index, const Bytes& expected, const Shape& shape) {
  ASSERT_LT(index, operation.outputs().size());
  const OutputBuffer& output = operation.outputs()[index];
  EXPECT_EQ(output.shape, shape);
  ASSERT_EQ(output.n_bytes, expected.size());
  EXPECT_EQ(testing::contents(output), expected) << "wrong result";
}

class RowsConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  RowsConformanceTest() : worlds_(size(), std::get<2>(GetParam())) {}

  int size() const { return std::get<0>(GetParam()); }
  DataType dtype() const { return std::get<1>(GetParam()); }
  std::size_t row_bytes(std::int64_t width) const { return static_cast<std::size_t>(width) * size_of(dtype()); }

  // None, fewer than ranks, one more, uneven and many; and parts that are longer than several slots.
  std::array<Block, 6> blocks() const {
    const auto n = static_cast<std::int64_t>(size());
    const auto long_row = static_cast<std::int64_t>(kSlotBytes / size_of(dtype()) + 13);
    return {
        Block{0, 3}, Block{1, 5}, Block{n + 1, 1}, Block{2 * n + n / 2, 7}, Block{n, 0}, Block{2 * n + 1, long_row}};
  }

  std::vector<Bytes> inputs(const Block& block) const {
    const auto count = static_cast<std::size_t>(block.n_rows * block.width);
    return kernels::testing::make_inputs(dtype(), static_cast<std::size_t>(size()), count, count + 1);
  }

  // In all worlds, on each rank. Returns false when something failed.
  bool on_all(const std::string& what, const std::function<void(Engine&)>& body) {
    for (const Layout layout : kLayouts) {
      worlds_[layout].run([&](Engine& engine) {
        SCOPED_TRACE(what + ", " + to_string(layout) + ", rank " + std::to_string(engine.rank()));
        body(engine);
      });
    }
    return !HasFailure();
  }

  Worlds worlds_;
};

// --- reductions

struct ReductionCase {
  ReduceOp op;
  Factors factors;
};

// Every op; of the factors, all with sums only.
std::vector<ReductionCase> reduction_cases(DataType dtype) {
  std::vector<ReductionCase> cases;
  for (const ReduceOpInfo& row : kReduceOps) {
    if (!accepts(row.op, dtype) || row.op == ReduceOp::kAdasum) continue;  // which is one of allreduce only
    cases.push_back({row.op, {}});
    if (row.op == ReduceOp::kSum && accepts_factors(row.op, dtype)) {
      cases.push_back({row.op, {0.3, 1}});
      cases.push_back({row.op, {1, -1.75}});
    }
  }
  return cases;
}

Request reduction_request(Collective collective, const ReductionCase& c, DataType dtype, Shape shape) {
  Request r = request(collective, std::string(to_string(c.op)), dtype, std::move(shape), nullptr);
  r.signature.op = c.op;
  r.signature.prescale = c.factors.prescale;
  r.signature.postscale = c.factors.postscale;
  return r;
}

// The rows of the allreduce, bit for bit: into memory of the engine's, of the caller's, and over the rank's own rows.
TEST_P(RowsConformanceTest, Reducescatter) {
  for (const ReductionCase& c : reduction_cases(dtype())) {
    for (const Block& block : blocks()) {
      const auto all = inputs(block);
      const auto count = static_cast<std::size_t>(block.n_rows * block.width);
      const Reduction reduction{dtype(), c.op, c.factors.prescale, c.factors.postscale, size()};
      const Bytes whole = kernels::testing::expected(reduction, all, count);
      const Rows rows = even_splits(block.n_rows, size());
      const bool is_good = on_all(std::string(to_string(c.op)) + ", " + describe(block), [&](Engine& engine) {
        const auto rank = static_cast<std::size_t>(engine.rank());
        std::size_t begin = 0;
        for (std::size_t before = 0; before < rank; ++before) {
          begin += static_cast<std::size_t>(rows[before]) * row_bytes(block.width);
        }
        const Bytes expected = slice(whole, begin, static_cast<std::size_t>(rows[rank]) * row_bytes(block.width));
        for (const std::size_t misalignment : {Guarded::kAligned, Guarded::kMisaligned}) {
          Guarded input(all[rank], misalignment);
          Guarded output(expected.size(), misalignment);
          for (std::byte* given : {static_cast<std::byte*>(nullptr), output.data(), input.data() + begin}) {
            Request r = reduction_request(Collective::kReducescatter, c, dtype(), {block.n_rows, block.width});
            r.memory = {{input.data(), given, home().place}};
            auto operation = submit(engine, std::move(r));
            const Status status = wait_at_home(engine, operation);
            ASSERT_TRUE(status.ok()) << status.message();
            if (given == nullptr) expect_output(*operation, 0, expected, {rows[rank], block.width});
            EXPECT_TRUE(given != output.data() || output.holds(expected));
            EXPECT_TRUE(given == input.data() + begin || input.holds(all[rank])) << "the input was changed";
          }
          Bytes changed = all[rank];
          std::copy(expected.begin(), expected.end(), changed.begin() + static_cast<std::ptrdiff_t>(begin));
          EXPECT_TRUE(input.holds(changed)) << "in place";
          EXPECT_TRUE(input.is_intact() && output.is_intact());
        }
      });
      if (!is_good) return;
    }
  }
}

TEST_P(RowsConformanceTest, Reduce) {
  for (const ReductionCase& c : reduction_cases(dtype())) {
    for (const std::size_t count : counts(dtype())) {
      const auto all = inputs({static_cast<std::int64_t>(count), 1});
      const Reduction reduction{dtype(), c.op, c.factors.prescale, c.factors.postscale, size()};
      const Bytes expected = kernels::testing::expected(reduction, all, count);
      const int root = static_cast<int>(count) % size();
      const bool is_good = on_all(std::string(to_string(c.op)) + ", " + std::to_string(count), [&](Engine& engine) {
        const bool is_root = engine.rank() == root;
        const Bytes& mine = all[static_cast<std::size_t>(engine.rank())];
        for (const auto& [misalignment, in_place] : kPlacements) {
          Guarded input(mine, misalignment);
          Guarded output(mine.size(), misalignment);
          const Bytes before(output.bytes().begin(), output.bytes().end());
          Request r = reduction_request(Collective::kReduce, c, dtype(), {static_cast<std::int64_t>(count)});
          r.signature.root = root;
          r.memory = {{input.data(), in_place ? input.data() : output.data(), home().place}};
          if (!is_root && misalignment == Guarded::kMisaligned) r.memory[0].output = nullptr;
          const Status status = wait_at_home(engine, submit(engine, std::move(r)));
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_TRUE(input.holds(is_root && in_place ? expected : mine));
          EXPECT_TRUE(output.holds(is_root && !in_place ? expected : before));
          EXPECT_TRUE(input.is_intact() && output.is_intact());
        }
      });
      if (!is_good) return;
    }
  }
}

// --- what is only moved

// How many rows each rank has for each other.
using Splits = std::int64_t (*)(int from, int to, int size);
constexpr std::array<Splits, 6> kSplits{
    [](int, int, int) -> std::int64_t { return 2; },
    [](int from, int to, int) -> std::int64_t { return (from + 2 * to) % 3; },
    [](int from, int to, int size) -> std::int64_t { return from == size - 1 && to == 0 ? 9 : 0; },
    [](int from, int, int) -> std::int64_t { return from % 2; },
    [](int from, int to, int) -> std::int64_t { return from == to ? 4 : 0; },
    [](int, int, int) -> std::int64_t { return 0; }};

// Rows that tell where they come from and where they go.
Bytes rows_of(DataType dtype, int from, int to, std::int64_t n_rows, std::int64_t width) {
  const auto count = static_cast<std::size_t>(n_rows * width);
  return kernels::testing::make_inputs(dtype, 1, count, static_cast<std::uint64_t>(100 * from + to + 1)).front();
}

std::vector<std::int64_t> widths(DataType dtype) {
  return {1, 5, 0, static_cast<std::int64_t>(kSlotBytes / size_of(dtype) + 3)};
}

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

TEST_P(RowsConformanceTest, Alltoall) {
  for (const std::int64_t width : widths(dtype())) {
    for (std::size_t which = 0; which < kSplits.size(); ++which) {
      // The same name whatever the splits.
      const bool is_good = on_all("splits " + std::to_string(which), [&](Engine& engine) {
        Bytes sent;
        Bytes expected;
        Rows to;
        Rows from;
        for (int other = 0; other < size(); ++other) {
          to.push_back(kSplits[which](engine.rank(), other, size()));
          from.push_back(kSplits[which](other, engine.rank(), size()));
          append(sent, rows_of(dtype(), engine.rank(), other, to.back(), width));
          append(expected, rows_of(dtype(), other, engine.rank(), from.back(), width));
        }
        const Rows sums{std::accumulate(to.begin(), to.end(), std::int64_t{0}),
                        std::accumulate(from.begin(), from.end(), std::int64_t{0})};
        for (const std::size_t misalignment : {Guarded::kAligned, Guarded::kMisaligned}) {
          Guarded input(sent, misalignment);
          Request r =
              request(Collective::kAlltoall, "a" + std::to_string(width), dtype(), {sums[0], width}, input.data());
          if (which != 0) r.splits = {to};  // else equal parts, not given
          auto operation = submit(engine, std::move(r));
          const Status status = wait_at_home(engine, operation);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(operation->outputs().size(), 2U);
          expect_output(*operation, 0, expected, {sums[1], width});
          Bytes received(from.size() * sizeof(std::int64_t));
          std::memcpy(received.data(), from.data(), received.size());
          expect_output(*operation, 1, received, {size()});
          EXPECT_TRUE(input.is_intact() && input.holds(sent));
        }
      });
      if (!is_good) return;
    }
  }
}

// Every rank gets as many rows as it sends, into memory of its own: another, or the very one that it sends from.
TEST_P(RowsConformanceTest, AlltoallIntoGivenMemory) {
  for (const std::int64_t width : widths(dtype())) {
    for (const std::int64_t n_rows : {0, 1, 3}) {
      const bool is_good = on_all("rows " + std::to_string(n_rows), [&](Engine& engine) {
        Bytes sent;
        Bytes expected;
        for (int other = 0; other < size(); ++other) {
          append(sent, rows_of(dtype(), engine.rank(), other, n_rows, width));
          append(expected, rows_of(dtype(), other, engine.rank(), n_rows, width));
        }
        for (const auto& [misalignment, in_place] : kPlacements) {
          Operand operand(sent, misalignment, in_place);
          Request r = request(Collective::kAlltoall, "into", dtype(), {n_rows * size(), width}, nullptr);
          r.memory = {operand.memory()};
          r.has_room_for_all = true;
          const Status status = wait_at_home(engine, submit(engine, std::move(r)));
          ASSERT_TRUE(status.ok()) << status.message();
          operand.expect(expected);
        }
      });
      if (!is_good) return;
    }
  }
}

TEST_P(RowsConformanceTest, Gather) {
  for (const std::int64_t width : widths(dtype())) {
    for (std::size_t which = 0; which < kSplits.size(); ++which) {
      const int root = static_cast<int>(which) % size();
      Bytes all;
      std::int64_t n_all = 0;
      for (int rank = 0; rank < size(); ++rank) {
        append(all, rows_of(dtype(), rank, 0, kSplits[which](rank, 0, size()), width));
        n_all += kSplits[which](rank, 0, size());
      }
      const bool is_good = on_all("rows " + std::to_string(which), [&](Engine& engine) {
        const std::int64_t n_rows = kSplits[which](engine.rank(), 0, size());
        for (const std::size_t misalignment : {Guarded::kAligned, Guarded::kMisaligned}) {
          Guarded input(rows_of(dtype(), engine.rank(), 0, n_rows, width), misalignment);
          Request r = request(Collective::kGather, "g", dtype(), {n_rows, width}, input.data());
          r.signature.root = root;
          auto operation = submit(engine, std::move(r));
          const Status status = wait_at_home(engine, operation);
          ASSERT_TRUE(status.ok()) << status.message();
          if (engine.rank() == root) {
            expect_output(*operation, 0, all, {n_all, width});
          } else {
            EXPECT_TRUE(operation->outputs().empty());
          }
        }
      });
      if (!is_good) return;
    }
  }
}

TEST_P(RowsConformanceTest, Scatter) {
  for (const std::int64_t width : widths(dtype())) {
    for (std::size_t which = 0; which < kSplits.size(); ++which) {
      const int root = static_cast<int>(which) % size();
      for (const bool is_even : {false, true}) {
        Rows splits;
        for (int to = 0; to < size(); ++to) splits.push_back(kSplits[which](root, to, size()));
        const std::int64_t n_all = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
        if (is_even) splits = even_splits(n_all, size());
        Bytes all;
        for (int to = 0; to < size(); ++to) {
          append(all, rows_of(dtype(), root, to, splits[static_cast<std::size_t>(to)], width));
        }
        const bool is_good = on_all("splits " + std::to_string(which), [&](Engine& engine) {
          const std::int64_t n_rows = splits[static_cast<std::size_t>(engine.rank())];
          for (const std::size_t misalignment : {Guarded::kAligned, Guarded::kMisaligned}) {
            Guarded input(engine.rank() == root ? all : Bytes{}, misalignment);
            Request r = request(Collective::kScatter, "s", dtype(), {engine.rank() == root ? n_all : 0, width},
                                engine.rank() == root ? input.data() : nullptr);
            r.signature.root = root;
            if (!is_even && engine.rank() == root) r.splits = {splits};
            auto operation = submit(engine, std::move(r));
            const Status status = wait_at_home(engine, operation);
            ASSERT_TRUE(status.ok()) << status.message();
            ASSERT_EQ(operation->outputs().size(), 1U);
            expect_output(*operation, 0, rows_of(dtype(), root, engine.rank(), n_rows, width), {n_rows, width});
          }
        });
        if (!is_good) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, RowsConformanceTest,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::ValuesIn(all_types()),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(EverySize, RowsConformanceTest,
                         ::testing::Combine(::testing::Values(1, 7), ::testing::ValuesIn(kTypesBySize),
                                            ::testing::Values(Homes::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(EverySizeOnDevice, RowsConformanceTest, kEverySizeOnDevice, name_of);
INSTANTIATE_TEST_SUITE_P(MixedWithHost, RowsConformanceTest, kMixedWithHost, name_of);
#ifndef CIRANDA_SANITIZED
INSTANTIATE_TEST_SUITE_P(OnGpu, RowsConformanceTest, kOnGpu, name_of);
INSTANTIATE_TEST_SUITE_P(ByNccl, RowsConformanceTest, kByNccl, name_of);
#endif

// --- groups

class RowsGroupConformanceTest : public ::testing::TestWithParam<GroupCase> {
 protected:
  RowsGroupConformanceTest() : worlds_(size(), std::get<1>(GetParam())) {}
  static int size() { return std::get<0>(GetParam()); }
  Worlds worlds_;
};

// A group of every type that sums, with three lengths each; the first dimension is the number of rows.
struct GroupOfAll {
  std::vector<DataType> dtypes;
  std::vector<std::int64_t> n_rows;
  std::vector<std::vector<Bytes>> inputs;  // [tensor][rank]

  explicit GroupOfAll(int size) {
    for (const DataTypeInfo& row : kDataTypes) {
      if (!accepts(ReduceOp::kSum, row.dtype)) continue;
      for (const std::int64_t rows : {2, 0, 901}) {
        dtypes.push_back(row.dtype);
        n_rows.push_back(rows);
        inputs.push_back(kernels::testing::make_inputs(row.dtype, static_cast<std::size_t>(size),
                                                       static_cast<std::size_t>(rows), dtypes.size()));
      }
    }
  }

  // Those of a rank, at home.
  std::vector<Guarded> tensors(int rank) const {
    std::vector<Guarded> own;
    for (const auto& all : inputs) own.emplace_back(all[static_cast<std::size_t>(rank)], Guarded::kAligned);
    return own;
  }

  Request request(Collective collective, std::vector<Guarded>& own) const {
    Request r;
    r.name = "group";
    r.signature.collective = collective;
    if (info(collective).has_root) r.signature.root = 0;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      r.signature.tensors.push_back({dtypes[i], {n_rows[i]}});
      r.memory.push_back({own[i].data(), nullptr, home().place});
    }
    return r;
  }

  // Rows [begin, begin + n) of a tensor's bytes.
  Bytes rows(std::size_t tensor, const Bytes& bytes, std::int64_t begin, std::int64_t n) const {
    const std::size_t element_bytes = size_of(dtypes[tensor]);
    return slice(bytes, static_cast<std::size_t>(begin) * element_bytes, static_cast<std::size_t>(n) * element_bytes);
  }
};

std::int64_t begin_of(const Rows& rows, int rank) {
  return std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
}

TEST_P(RowsGroupConformanceTest, ReducescatterOfEveryTypeAtOnce) {
  const GroupOfAll group(size());
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      std::vector<Guarded> own = group.tensors(engine.rank());
      auto operation = submit(engine, group.request(Collective::kReducescatter, own));
      ASSERT_TRUE(wait_at_home(engine, operation).ok());
      for (std::size_t i = 0; i < group.dtypes.size(); ++i) {
        SCOPED_TRACE("tensor " + std::to_string(i) + " " + to_string(layout));
        const Reduction reduction{group.dtypes[i], ReduceOp::kSum, 1, 1, size()};
        const Bytes whole =
            kernels::testing::expected(reduction, group.inputs[i], static_cast<std::size_t>(group.n_rows[i]));
        const Rows rows = even_splits(group.n_rows[i], size());
        const std::int64_t mine = rows[static_cast<std::size_t>(engine.rank())];
        expect_output(*operation, i, group.rows(i, whole, begin_of(rows, engine.rank()), mine), {mine});
      }
    });
  }
}

TEST_P(RowsGroupConformanceTest, AlltoallOfEveryTypeAtOnce) {
  const GroupOfAll group(size());
  // Everything to the next rank, but for the last rows, which stay.
  const auto splits_of = [&](std::size_t tensor, int rank) {
    Rows splits(static_cast<std::size_t>(size()));
    const std::int64_t n_kept = group.n_rows[tensor] / 3;
    splits[static_cast<std::size_t>((rank + 1) % size())] += group.n_rows[tensor] - n_kept;
    splits[static_cast<std::size_t>(rank)] += n_kept;
    return splits;
  };
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      std::vector<Guarded> own = group.tensors(engine.rank());
      Request r = group.request(Collective::kAlltoall, own);
      for (std::size_t i = 0; i < group.dtypes.size(); ++i) r.splits.push_back(splits_of(i, engine.rank()));
      auto operation = submit(engine, std::move(r));
      ASSERT_TRUE(wait_at_home(engine, operation).ok());
      ASSERT_EQ(operation->outputs().size(), 2 * group.dtypes.size());
      for (std::size_t i = 0; i < group.dtypes.size(); ++i) {
        SCOPED_TRACE("tensor " + std::to_string(i) + " " + to_string(layout));
        Bytes expected;
        for (int from = 0; from < size(); ++from) {
          const Rows splits = splits_of(i, from);
          const std::int64_t mine = splits[static_cast<std::size_t>(engine.rank())];
          append(expected,
                 group.rows(i, group.inputs[i][static_cast<std::size_t>(from)], begin_of(splits, engine.rank()), mine));
        }
        const auto n_rows = static_cast<std::int64_t>(expected.size() / size_of(group.dtypes[i]));
        expect_output(*operation, i, expected, {n_rows});
      }
    });
  }
}

TEST_P(RowsGroupConformanceTest, ReduceGatherAndScatterOfEveryTypeAtOnce) {
  const GroupOfAll group(size());
  for (const Layout layout : kLayouts) {
    worlds_[layout].run([&](Engine& engine) {
      std::vector<Guarded> own = group.tensors(engine.rank());
      const bool is_root = engine.rank() == 0;
      std::vector<Guarded> results;
      results.reserve(group.dtypes.size());
      Request reduce = group.request(Collective::kReduce, own);
      for (std::size_t i = 0; is_root && i < group.dtypes.size(); ++i) {
        results.emplace_back(group.inputs[i].front().size(), Guarded::kAligned);
        reduce.memory[i].output = results.back().data();
      }
      ASSERT_TRUE(wait_at_home(engine, submit(engine, std::move(reduce))).ok());
      auto gathered = submit(engine, group.request(Collective::kGather, own));
      ASSERT_TRUE(wait_at_home(engine, gathered).ok());
      auto scattered = submit(engine, group.request(Collective::kScatter, own));
      ASSERT_TRUE(wait_at_home(engine, scattered).ok());
      for (std::size_t i = 0; i < group.dtypes.size(); ++i) {
        SCOPED_TRACE("tensor " + std::to_string(i) + " " + to_string(layout));
        const Reduction reduction{group.dtypes[i], ReduceOp::kSum, 1, 1, size()};
        const Bytes sum =
            kernels::testing::expected(reduction, group.inputs[i], static_cast<std::size_t>(group.n_rows[i]));
        Bytes all;
        for (const Bytes& input : group.inputs[i]) append(all, input);
        if (is_root) {
          EXPECT_TRUE(results[i].holds(sum) && results[i].is_intact());
          expect_output(*gathered, i, all, {group.n_rows[i] * size()});
        }
        const Rows rows = even_splits(group.n_rows[i], size());
        const std::int64_t mine = rows[static_cast<std::size_t>(engine.rank())];
        expect_output(*scattered, i, group.rows(i, group.inputs[i].front(), begin_of(rows, engine.rank()), mine),
                      {mine});
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RowsGroupConformanceTest, kGroupCases, name_of_group);
#ifndef CIRANDA_SANITIZED
INSTANTIATE_TEST_SUITE_P(OnGpu, RowsGroupConformanceTest, kGroupsOnGpu, name_of_group);
#endif

}  // namespace
}  // namespace ciranda
