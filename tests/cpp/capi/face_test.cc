// The C++ face, in a world of one: types, options, exceptions, lifetimes.
#include <gtest/gtest.h>

#include <ciranda/ciranda.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace {

using ciranda::Context;

const Context::Settings kAlone{{"CIRANDA_RANK", "0"}, {"CIRANDA_SIZE", "1"}};

static_assert(ciranda::DataTypeOf<bool>::value == CIRANDA_BOOL);
static_assert(ciranda::DataTypeOf<signed char>::value == CIRANDA_INT8);
static_assert(ciranda::DataTypeOf<std::uint16_t>::value == CIRANDA_UINT16);
static_assert(ciranda::DataTypeOf<std::int32_t>::value == CIRANDA_INT32);
static_assert(ciranda::DataTypeOf<std::uint32_t>::value == CIRANDA_UINT32);
static_assert(ciranda::DataTypeOf<long long>::value == CIRANDA_INT64);
static_assert(ciranda::DataTypeOf<std::uint64_t>::value == CIRANDA_UINT64);
static_assert(ciranda::DataTypeOf<float>::value == CIRANDA_FLOAT32);
static_assert(ciranda::DataTypeOf<double>::value == CIRANDA_FLOAT64);

TEST(Face, AllreduceInPlaceAndNot) {
  Context world(kAlone);
  std::vector<float> values{1, 2, 3};
  world.allreduce(std::span(values), {.name = "values", .postscale = 2});
  EXPECT_EQ(values, (std::vector<float>{2, 4, 6}));
  std::vector<float> doubled(3);
  world.allreduce_async<float>(values, doubled, {.op = ciranda::ReduceOp::kMax, .prescale = 2}).wait();
  EXPECT_EQ(doubled, (std::vector<float>{4, 8, 12}));
}

TEST(Face, CallsOfANameByItsHandle) {
  ciranda::Context world(kAlone);
  const ciranda::Handle handle;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> values{1, 2};
    world.allreduce(std::span(values), {.name = "x", .postscale = 2, .at = {.handle = &handle}});
    world.allreduce_async(std::span(values), {.name = "x", .postscale = 2, .at = {.handle = &handle}}).wait();
    EXPECT_EQ(values, (std::vector<float>{4, 8}));
  }
}

TEST(Face, BroadcastAllgatherBarrier) {
  Context world(kAlone);
  std::vector<std::uint8_t> bytes{1, 2};
  world.broadcast(std::span(bytes), {.name = "bytes"});
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{1, 2}));
  const std::vector<double> rows{1, 2, 3, 4};
  const auto gathered = world.allgather(std::span(rows), {.row_shape = {2}});
  EXPECT_EQ(std::vector<double>(gathered.values().begin(), gathered.values().end()), rows);
  EXPECT_EQ(std::vector<std::int64_t>(gathered.shape().begin(), gathered.shape().end()),
            (std::vector<std::int64_t>{2, 2}));
  world.barrier();
}

TEST(Face, RowsAreCutJoinedAndCounted) {
  Context world(kAlone);
  const std::vector<double> rows{1, 2, 3, 4};
  const auto content = [](const auto& result) {
    return std::vector<double>(result.values().begin(), result.values().end());
  };
  const auto doubled = world.reducescatter(std::span(rows), {.prescale = 2, .row_shape = {2}});
  EXPECT_EQ(content(doubled), (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(doubled.shape().size(), 2U);
  EXPECT_TRUE(doubled.received().empty());
  const auto exchanged = world.alltoall(std::span(rows), {.name = "rows", .splits = {4}});
  EXPECT_EQ(content(exchanged), rows);
  ASSERT_EQ(exchanged.received().size(), 1U);
  EXPECT_EQ(exchanged.received()[0], 4);
  EXPECT_EQ(content(world.gather(std::span(rows))), rows);
  EXPECT_EQ(content(world.scatter(std::span(rows), {.splits = {2}, .row_shape = {2}})), rows);
  std::vector<double> in_place = rows;
  world.reduce(std::span(in_place), {.op = ciranda::ReduceOp::kProduct, .postscale = 3});
  EXPECT_EQ(in_place, (std::vector<double>{3, 6, 9, 12}));
  world.scan(std::span(in_place), {.prescale = 2});
  world.scan_async(std::span(in_place), {.op = ciranda::ReduceOp::kMax}).wait();
  EXPECT_EQ(in_place, (std::vector<double>{6, 12, 18, 24}));
  EXPECT_THROW((void)world.alltoall(std::span(rows), {.splits = {3}}), ciranda::Error);
}

TEST(Face, RowsIntoMemoryThatIsThere) {
  Context world(kAlone);
  const std::vector<double> rows{1, 2, 3, 4};
  std::vector<double> result(4);
  for (int step = 0; step < 3; ++step) {
    result.assign(4, 0);
    world.allgather(std::span(rows), std::span(result), {.name = "all", .row_shape = {2}});
    EXPECT_EQ(result, rows);
    world.reducescatter(std::span(rows), std::span(result), {.name = "sum", .prescale = 2});
    EXPECT_EQ(result, (std::vector<double>{2, 4, 6, 8}));
    world.alltoall(std::span(rows), std::span(result), {.name = "rows", .row_shape = {4}});
    EXPECT_EQ(result, rows);
    world.alltoall(std::span(result), std::span(result), {.name = "in place"});
    EXPECT_EQ(result, rows);
  }
  const std::span<double> shorter = std::span(result).first(3);
  EXPECT_THROW(world.allgather(std::span(rows), shorter), ciranda::Error);
  EXPECT_THROW(world.reducescatter(std::span(rows), shorter), ciranda::Error);
  EXPECT_THROW(world.alltoall(std::span(rows), shorter), ciranda::Error);
  EXPECT_THROW(world.alltoall(std::span(rows), std::span(result), {.splits = {4}}), ciranda::Error);
  world.reducescatter(std::span(rows).first<0>(), std::span(result).first<0>(), {.row_shape = {2}});
}

TEST(Face, GroupsOfSeveralTypesAreOneOperation) {
  Context world(kAlone);
  std::vector<float> floats{1, 2};
  std::vector<std::int32_t> integers{3, 4, 5};
  ciranda::Group in_place;
  in_place.add(std::span(floats)).add(std::span(integers));
  EXPECT_EQ(in_place.size(), 2U);
  world.group(ciranda::Collective::kAllreduce, in_place, {.name = "both", .postscale = 2});
  EXPECT_EQ(floats, (std::vector<float>{2, 4}));
  EXPECT_EQ(integers, (std::vector<std::int32_t>{6, 8, 10}));

  ciranda::Group rows;
  rows.add(std::span<const float>(floats)).add(std::span(integers), {3}, {1});
  const ciranda::Results exchanged = world.group(ciranda::Collective::kAlltoall, rows);
  ASSERT_EQ(exchanged.count(), 4U);
  EXPECT_EQ(exchanged.values<float>(0)[1], 4);
  EXPECT_EQ(exchanged.shape(1).size(), 2U);
  EXPECT_EQ(exchanged.received(0)[0], 2);
  EXPECT_EQ(exchanged.received(1)[0], 1);
  EXPECT_THROW((void)world.group(ciranda::Collective::kBroadcast, rows, {.root = 0}), ciranda::Error);
}

TEST(Face, ProcessSetsLanesAndJoining) {
  Context world(Context::Settings{{"CIRANDA_RANK", "0"}, {"CIRANDA_SIZE", "1"}, {"CIRANDA_NUM_LANES", "2"}});
  EXPECT_EQ(world.ranks_of(0), (std::vector<std::int32_t>{0}));
  EXPECT_TRUE(world.ranks_of(7).empty());
  EXPECT_THROW(world.add_process_set({3}), ciranda::Error);
  EXPECT_THROW(world.remove_process_set(7), ciranda::Error);
  std::vector<float> values{1, 2};
  world.allreduce(std::span(values), {.postscale = 3, .at = {.lane = 1}});
  EXPECT_EQ(values, (std::vector<float>{3, 6}));
  world.allreduce(std::span(values), {.postscale = 2, .at = {.lane = 2}});
  EXPECT_EQ(values, (std::vector<float>{6, 12}));
  EXPECT_THROW(world.allreduce(std::span(values), {.at = {.lane = 64}}), ciranda::Error);
  EXPECT_THROW(world.broadcast(std::span(values), {.at = {.process_set = 7}}), ciranda::Error);
  EXPECT_THROW(world.send(std::span(values), 0), ciranda::Error);
  world.barrier({.lane = 1});
  EXPECT_EQ(world.join(), 0);
}

TEST(Face, FindsTheWorldThatIsThere) {
  EXPECT_FALSE(Context::current());
  std::optional<Context> found;
  {
    Context world(kAlone);
    found = Context::current();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->get(), world.get());
    Context::current();  // comes and goes
    EXPECT_TRUE(world.is_open());
    std::vector<float> values{1, 2};
    const ciranda::Operation operation =
        found->allreduce_async(std::span(values), {.postscale = 2, .at = {.needs_all = true}});
    EXPECT_TRUE(operation.wait_for(60));
    EXPECT_EQ(values, (std::vector<float>{2, 4}));
  }
  EXPECT_FALSE(found->is_open());
  EXPECT_THROW(found->barrier(), ciranda::Error);
}

TEST(Face, SharedMemoryAndFormedSets) {
  Context world(kAlone);
  const ciranda::SharedMemory memory(world, 4 * sizeof(double));
  const std::span<double> values = memory.values<double>();
  ASSERT_EQ(values.size(), 4U);
  values[3] = 5;
  const std::uint32_t set = world.form_process_set({0}, 3);
  world.allreduce(values, {.postscale = 2, .at = {.process_set = set}});
  EXPECT_EQ(values[3], 10);
  EXPECT_THROW(world.form_process_set({0}, 3), ciranda::Error);
}

TEST(Face, ErrorsAreExceptionsWithAKind) {
  Context world(kAlone);
  std::vector<float> values{1, 2, 3};
  try {
    world.broadcast(std::span(values), {.name = "there", .root = 4});
    FAIL() << "a root outside the world was accepted";
  } catch (const ciranda::Error& error) {
    EXPECT_EQ(error.kind(), ciranda::ErrorKind::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("there"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)world.allgather(std::span(values), {.row_shape = {2}}), ciranda::Error);
  std::vector<float> shorter(2);
  EXPECT_THROW((void)world.allreduce_async<float>(values, shorter), ciranda::Error);
  EXPECT_THROW(Context(Context::Settings{{"CIRANDA_SIZE", "0"}}), ciranda::Error);
}

TEST(Face, AnOperationMayOutliveItsContextAndBeMoved) {
  std::vector<float> values{1, 2, 3};
  ciranda::Operation operation;
  {
    Context world(kAlone);
    operation = world.allreduce_async(std::span(values), {.name = "first"});
    ciranda::Operation other = world.allreduce_async(std::span(values).first<0>(), {.name = "second"});
    other = std::move(operation);
    other.wait();
    EXPECT_TRUE(other.is_done());
    operation = std::move(other);
  }
  EXPECT_TRUE(operation.is_done());
  operation.wait();
}

}  // namespace
