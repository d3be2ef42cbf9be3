// validate(): every kind of request that cannot be carried out is refused, with a text that says what to change.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "call/request.hpp"

namespace ciranda {
namespace {

constexpr int kRank = 1;
constexpr int kSize = 4;

Request request(Collective collective, std::vector<TensorSignature> tensors) {
  Request out;
  out.name = "x";
  out.signature.collective = collective;
  out.signature.tensors = std::move(tensors);
  static std::byte memory{};  // never looked at
  out.memory.resize(out.signature.tensors.size(), TensorMemory{&memory, &memory});
  if (info(collective).has_root) out.signature.root = 0;
  return out;
}
Request allreduce(Shape shape, DataType dtype = DataType::kFloat32) {
  return request(Collective::kAllreduce, {{dtype, std::move(shape)}});
}

std::string refusal(const Request& request) {
  const std::vector<int> ranks{0, 1, 2, 3};
  static_assert(kSize == 4);
  const Status status = validate(request, ranks, kRank);
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.kind(), ErrorKind::kInvalidArgument);
  return status.message();
}

TEST(Validate, AcceptsEveryCollective) {
  EXPECT_EQ(refusal(allreduce({3, 4})), "accepted");
  EXPECT_EQ(refusal(allreduce({})), "accepted");
  EXPECT_EQ(refusal(allreduce({0})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kAllgather, {{DataType::kBool, {0, 3}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kBroadcast, {{DataType::kBool, {}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kBarrier, {})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kReducescatter, {{DataType::kInt8, {3, 2}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kAlltoall, {{DataType::kBool, {4, 2}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kReduce, {{DataType::kInt8, {}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kGather, {{DataType::kBool, {3}}})), "accepted");
  EXPECT_EQ(refusal(request(Collective::kScatter, {{DataType::kBool, {3}}})), "accepted");
}

TEST(Validate, AcceptsExactlyWhatTheTablesAccept) {
  for (const ReduceOpInfo& op : kReduceOps) {
    for (const DataTypeInfo& dtype : kDataTypes) {
      Request reduction = allreduce({4}, dtype.dtype);
      reduction.signature.op = op.op;
      EXPECT_EQ(refusal(reduction) == "accepted", accepts(op.op, dtype.dtype)) << op.name << " of " << dtype.name;
    }
  }
}

std::string refusal(ReduceOp op, DataType dtype, double postscale = 1.0) {
  Request reduction = allreduce({4}, dtype);
  reduction.signature.op = op;
  reduction.signature.postscale = postscale;
  return refusal(reduction);
}

TEST(Validate, SaysWhatTheOpTakesAndWhatTheTypeCanBeCombinedBy) {
  EXPECT_EQ(refusal(ReduceOp::kSum, DataType::kBool),
            "allreduce 'x': there is no sum of bool. sum takes uint8, uint16, uint32, uint64, int8, int16, int32, "
            "int64, float16, bfloat16, float32, float64, complex64, complex128; bool can be combined by min, max, "
            "logical_and, logical_or, logical_xor.");
  EXPECT_EQ(refusal(ReduceOp::kMin, DataType::kComplex64),
            "allreduce 'x': there is no min of complex64. min takes bool, uint8, uint16, uint32, uint64, int8, int16, "
            "int32, int64, float16, bfloat16, float32, float64; complex64 can be combined by average, sum, product.");
  EXPECT_EQ(refusal(ReduceOp::kLogicalAnd, DataType::kInt8),
            "allreduce 'x': there is no logical_and of int8. logical_and takes bool; int8 can be combined by average, "
            "sum, min, max, product, bitwise_and, bitwise_or, bitwise_xor.");
}

TEST(Validate, RefusesAdasumOfOtherCollectives) {
  Request reduction = allreduce({4});
  reduction.signature.op = ReduceOp::kAdasum;
  EXPECT_EQ(refusal(reduction), "accepted");
  reduction.signature.collective = Collective::kReducescatter;
  EXPECT_EQ(refusal(reduction), "reducescatter 'x': the reduce op adasum is one of allreduce only.");
}

TEST(Validate, RefusesToScaleWhatHasNoScale) {
  EXPECT_EQ(refusal(ReduceOp::kMax, DataType::kBool), "accepted");
  EXPECT_EQ(refusal(ReduceOp::kMax, DataType::kBool, 0.5),
            "allreduce 'x': max of bool cannot be scaled; leave prescale_factor and postscale_factor at 1.");
  EXPECT_EQ(refusal(ReduceOp::kBitwiseXor, DataType::kInt32), "accepted");
  EXPECT_EQ(refusal(ReduceOp::kBitwiseXor, DataType::kInt32, 0.5),
            "allreduce 'x': bitwise_xor of int32 cannot be scaled; leave prescale_factor and postscale_factor at 1.");
  EXPECT_EQ(refusal(ReduceOp::kProduct, DataType::kComplex128, 0.5), "accepted");
}

TEST(Validate, TakesADivisorOfAveragesOnly) {
  constexpr std::array kTwo{0, 1};
  Signature signature{{Collective::kAllreduce, ReduceOp::kAverage}, {{DataType::kInt32, {3}}}, {}};
  signature.divides_by_all = true;
  EXPECT_TRUE(validate("x", signature, kTwo).ok());
  signature.op = ReduceOp::kSum;
  EXPECT_NE(validate("x", signature, kTwo).message().find("op=Average without weights, here it is sum"),
            std::string::npos);
  signature = {{Collective::kAllreduce, ReduceOp::kAverage}, {{DataType::kFloat32, {3}}}, {}};
  signature.is_weighted = signature.divides_by_all = true;
  EXPECT_NE(validate("x", signature, kTwo).message().find("here it is weighted"), std::string::npos);
}

TEST(Validate, RefusesWeightsOfWhatHasNoWeightedAverage) {
  Request weighted = allreduce({4});
  weighted.signature.is_weighted = true;
  EXPECT_EQ(refusal(weighted), "allreduce 'x': a weight needs op=Average, here it is sum, and an allreduce.");
  weighted.signature.op = ReduceOp::kAverage;
  EXPECT_EQ(refusal(weighted), "accepted");
  weighted.signature.tensors.push_back({DataType::kInt32, {4}});
  weighted.memory.push_back(weighted.memory.front());
  EXPECT_EQ(refusal(weighted).substr(0, 70), "allreduce 'x': there is no weighted average of int32, only of float16,");
}

// What each tensor of a group of allreduces is said to be, of four floats each at places of one buffer.
std::string refusal_at(std::vector<std::size_t> inputs, std::vector<std::size_t> outputs) {
  static std::array<float, 64> buffer;
  const auto at = [](std::size_t place) { return reinterpret_cast<std::byte*>(&buffer[place]); };
  Request group = allreduce({4});
  group.signature.tensors.resize(outputs.size(), group.signature.tensors.front());
  group.memory.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) group.memory.push_back({at(inputs[i]), at(outputs[i])});
  return refusal(group);
}

TEST(Validate, RefusesResultsThatWouldOverwriteOthers) {
  const std::string why = ", which a result would overwrite; give copies of tensors that overlap.";
  const std::string twice = "allreduce 'x', tensor 1 of the group: it shares memory with tensor 0" + why;
  EXPECT_EQ(refusal_at({0, 4, 8}, {0, 4, 8}), "accepted");
  EXPECT_EQ(refusal_at({8, 4, 0}, {8, 4, 0}), "accepted");
  EXPECT_EQ(refusal_at({0, 0, 0}, {12, 4, 8}), "accepted");
  EXPECT_EQ(refusal_at({0, 4, 0}, {0, 4, 0}), "accepted");
  EXPECT_EQ(refusal_at({8, 4, 8}, {0, 4, 0}), "accepted");
  EXPECT_EQ(refusal_at({0, 3}, {0, 3}), twice);
  EXPECT_EQ(refusal_at({3, 0}, {3, 0}), twice);
  EXPECT_EQ(refusal_at({16, 20}, {0, 0}), twice);
  EXPECT_EQ(refusal_at({0, 4}, {4, 0}), twice);
  EXPECT_EQ(refusal_at({0, 7}, {4, 12}), twice);
  EXPECT_EQ(refusal_at({0, 0}, {0, 8}), twice);
  EXPECT_EQ(refusal_at({0, 20, 11}, {0, 8, 32}),
            "allreduce 'x', tensor 2 of the group: it shares memory with tensor 1" + why);
}

TEST(Validate, LooksAtNoResultsWhereThereAreNone) {
  Request group = allreduce({4});
  group.signature.collective = Collective::kReduce;
  group.signature.root = kRank + 1;
  group.signature.tensors.push_back(group.signature.tensors.front());
  static std::array<float, 5> buffer;
  const auto at = [](std::size_t place) { return reinterpret_cast<std::byte*>(&buffer[place]); };
  group.memory = {{at(0), at(0)}, {at(1), at(1)}};
  EXPECT_EQ(refusal(group), "accepted");
  group.signature.root = kRank;
  EXPECT_EQ(refusal(group).substr(0, 59), "reduce 'x', tensor 1 of the group: it shares memory with te");
}

TEST(Validate, LetsABroadcastHoldATensorTwice) {
  EXPECT_EQ(refusal(request(Collective::kBroadcast, {{DataType::kInt8, {1}}, {DataType::kInt8, {1}}})), "accepted");
}

TEST(Validate, RefusesFactorsThatAreNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    for (double Signature::*factor : {&Signature::prescale, &Signature::postscale}) {
      Request scaled = allreduce({4});
      scaled.signature.*factor = bad;
      EXPECT_EQ(refusal(scaled), "allreduce 'x': prescale_factor and postscale_factor must be finite numbers.");
    }
  }
}

TEST(Validate, RefusesNamesThatAreEmptyOrTooLong) {
  Request named = allreduce({4});
  named.name.clear();
  EXPECT_EQ(refusal(named), "allreduce: a name must have 1 to 1024 bytes, this one has 0.");
  named.name.assign(kMaxNameBytes, 'n');
  EXPECT_EQ(refusal(named), "accepted");
  named.name.push_back('n');
  EXPECT_EQ(refusal(named), "allreduce: a name must have 1 to 1024 bytes, this one has 1025.");
}

TEST(Validate, RefusesARootOutsideTheProcessSet) {
  Request in_a_set = request(Collective::kBroadcast, {{DataType::kFloat32, {4}}});
  in_a_set.signature.root = 1;
  const std::vector<int> ranks{0, 2};
  EXPECT_EQ(validate(in_a_set, ranks, kRank).message(),
            "broadcast 'x': root_rank 1 is not in the process set; its ranks, counted in the world, are 0, 2.");
  in_a_set.signature.root = 2;
  EXPECT_TRUE(validate(in_a_set, ranks, kRank).ok());
}

TEST(Validate, RefusesRanksThatMakeNoProcessSet) {
  Request add = request(Collective::kAddProcessSet, {});
  EXPECT_EQ(refusal(add), "add_process_set 'x': a process set needs at least one rank.");
  add.signature.arguments = {0, kSize};
  EXPECT_EQ(refusal(add), "add_process_set 'x': rank 4 of [0, 4] does not exist: they go from 0 to 3.");
  add.signature.arguments = {2, 1};
  EXPECT_EQ(refusal(add), "add_process_set 'x': the ranks must ascend and differ, these are [2, 1].");
  add.signature.arguments = {1, 1};
  EXPECT_EQ(refusal(add), "add_process_set 'x': the ranks must ascend and differ, these are [1, 1].");
  add.signature.arguments = {1, 2};
  EXPECT_EQ(refusal(add), "accepted");
}

TEST(Validate, RefusesToRemoveAnythingButOneProcessSet) {
  Request remove = request(Collective::kRemoveProcessSet, {});
  EXPECT_EQ(refusal(remove), "remove_process_set 'x': takes the number of one process set, not [].");
  remove.signature.arguments = {1, 2};
  EXPECT_EQ(refusal(remove), "remove_process_set 'x': takes the number of one process set, not [1, 2].");
  remove.signature.arguments = {std::int64_t{1} << 32};
  EXPECT_EQ(refusal(remove), "remove_process_set 'x': takes the number of one process set, not [4294967296].");
  remove.signature.arguments = {1};
  EXPECT_EQ(refusal(remove), "accepted");
}

TEST(Validate, RefusesTensorsWhereNoneBelongAndNoneWhereSomeDo) {
  EXPECT_EQ(refusal(request(Collective::kAllreduce, {})), "allreduce 'x': no tensor was given.");
  EXPECT_EQ(refusal(request(Collective::kBroadcast, {})), "broadcast 'x': no tensor was given.");
  EXPECT_EQ(refusal(request(Collective::kBarrier, {{DataType::kInt8, {1}}})), "barrier 'x': takes no tensor.");
}

TEST(Validate, RefusesGroupsThatAreTooLargeOrLackMemory) {
  Request group = request(Collective::kAllreduce, std::vector<TensorSignature>(kMaxTensorsPerRequest));
  std::vector<float> values(kMaxTensorsPerRequest);
  for (std::size_t i = 0; i < values.size(); ++i) group.memory[i].output = reinterpret_cast<std::byte*>(&values[i]);
  EXPECT_EQ(refusal(group), "accepted");
  group.memory.pop_back();
  EXPECT_EQ(refusal(group), "allreduce 'x': there are 65536 tensors but memory for 65535.");
  EXPECT_EQ(refusal(request(Collective::kAllreduce, std::vector<TensorSignature>(kMaxTensorsPerRequest + 1))),
            "allreduce 'x': at most 65536 tensors make a group, here are 65537.");
}

TEST(Validate, RefusesNullPointersForTensorsThatAreNotEmpty) {
  Request all = allreduce({3, 4});
  all.memory[0].input = nullptr;
  EXPECT_EQ(refusal(all), "accepted");  // in place
  all.memory[0].output = nullptr;
  EXPECT_EQ(refusal(all), "allreduce 'x': no memory was given (a null pointer) for a tensor of shape [3, 4].");
  all = allreduce({});
  all.memory[0].output = nullptr;
  EXPECT_EQ(refusal(all), "allreduce 'x': no output memory was given (a null pointer) for a tensor of shape [].");
  all = allreduce({0, 4});
  all.memory[0] = {};
  EXPECT_EQ(refusal(all), "accepted");
}

TEST(Validate, RefusesNullPointersOnTheRanksThatNeedMemory) {
  Request rooted = request(Collective::kReduce, {{DataType::kInt8, {2}}});
  rooted.memory[0].output = nullptr;
  EXPECT_EQ(refusal(rooted), "accepted");
  rooted.signature.root = kRank;
  EXPECT_EQ(refusal(rooted), "reduce 'x': no output memory was given (a null pointer) for a tensor of shape [2].");
  rooted = request(Collective::kScatter, {{DataType::kInt8, {4}}});
  rooted.memory[0] = {};
  EXPECT_EQ(refusal(rooted), "accepted");
  rooted.signature.root = kRank;
  EXPECT_EQ(refusal(rooted), "scatter 'x': no memory was given (a null pointer) for a tensor of shape [4].");
  rooted = request(Collective::kTransfer, {{DataType::kInt8, {2}}});
  rooted.memory[0].output = nullptr;
  EXPECT_EQ(refusal(rooted), "send/recv 'x': no output memory was given (a null pointer) for a tensor of shape [2].");
  rooted.signature.root = kRank;
  EXPECT_EQ(refusal(rooted), "accepted");
}

TEST(Validate, RefusesNullPointersOnlyWhereTheEngineDoesNotAllocate) {
  Request gather = request(Collective::kAllgather, {{DataType::kInt8, {2}}, {DataType::kInt8, {2}}});
  gather.memory[1].output = nullptr;
  EXPECT_EQ(refusal(gather), "accepted");
  gather.memory[1].input = nullptr;
  EXPECT_EQ(refusal(gather),
            "allgather 'x', tensor 1 of the group: no memory was given (a null pointer) for a tensor of shape [2].");
}

TEST(Validate, RefusesARootThatIsNoRank) {
  Request rooted = request(Collective::kBroadcast, {{DataType::kInt8, {1}}});
  rooted.signature.root = kSize - 1;
  EXPECT_EQ(refusal(rooted), "accepted");
  rooted.signature.root = kSize;
  EXPECT_EQ(refusal(rooted), "broadcast 'x': root_rank 4 is not a rank: they go from 0 to 3.");
  rooted.signature.root = -1;
  EXPECT_EQ(refusal(rooted), "broadcast 'x': root_rank -1 is not a rank: they go from 0 to 3.");
}

TEST(Validate, RefusesNegativeDimensions) {
  EXPECT_EQ(refusal(allreduce({3, -1})), "'x': shape [3, -1] has a negative dimension.");
  EXPECT_NE(refusal(allreduce({0, std::numeric_limits<std::int64_t>::min()})), "accepted");
}

TEST(Validate, RefusesShapesThatOverflow) {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  for (const Shape& shape : {Shape{largest}, Shape{largest, largest}, Shape{1 << 30, 1 << 30, 1 << 30},
                             Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}}) {
    EXPECT_EQ(refusal(allreduce(shape)), "'x': a tensor of shape " + to_string(shape) + " is larger than any memory.");
  }
}

TEST(Validate, RefusesMoreThanAnyMemoryByBytesNotElements) {
  const std::int64_t limit = std::int64_t{1} << 56;
  EXPECT_EQ(refusal(allreduce({limit}, DataType::kUInt8)), "accepted");
  EXPECT_NE(refusal(allreduce({limit + 1}, DataType::kUInt8)), "accepted");
  EXPECT_EQ(refusal(allreduce({limit / 8}, DataType::kFloat64)), "accepted");
  EXPECT_NE(refusal(allreduce({limit / 8 + 1}, DataType::kFloat64)), "accepted");
}

// Each of these is just small enough.
TEST(Validate, RefusesAGroupThatIsLargerThanAnyMemory) {
  const TensorSignature large{DataType::kUInt8, {std::int64_t{1} << 56}};
  EXPECT_EQ(refusal(request(Collective::kAllreduce, std::vector<TensorSignature>(2, large))),
            "'x': the tensors of the group together are larger than any memory.");
}

TEST(Validate, RefusesTooManyDimensions) {
  EXPECT_EQ(refusal(allreduce(Shape(kMaxDimensions, 1))), "accepted");
  EXPECT_EQ(refusal(allreduce(Shape(kMaxDimensions + 1, 1))),
            "allreduce 'x': a tensor may have at most 64 dimensions, this one has 65.");
}

TEST(Validate, RefusesToGatherScalars) {
  EXPECT_EQ(refusal(request(Collective::kAllgather, {{DataType::kInt8, {}}})),
            "allgather 'x': a scalar has no first dimension; reshape it to [1].");
}

TEST(Validate, LooksAtEveryTensorOfAGroup) {
  Request group = request(Collective::kAllreduce, {{DataType::kInt8, {1}}, {DataType::kInt8, {-1}}});
  EXPECT_EQ(refusal(group), "'x': shape [-1] has a negative dimension.");
  group.signature.tensors[1] = {DataType::kBool, {1}};
  EXPECT_NE(refusal(group).find("no sum of bool"), std::string::npos);
}

// --- splits

Request alltoall(std::vector<Shape> shapes, std::vector<std::vector<std::int64_t>> splits) {
  std::vector<TensorSignature> tensors;
  for (Shape& shape : shapes) tensors.push_back({DataType::kFloat32, std::move(shape)});
  Request out = request(Collective::kAlltoall, std::move(tensors));
  out.splits = std::move(splits);
  return out;
}

std::string settled(Request request) {
  EXPECT_EQ(refusal(request), "accepted");  // until the ranks exchange their splits
  settle_splits(request, kSize, kRank);
  return request.refusal.ok() ? "accepted" : request.refusal.message();
}

TEST(Splits, AreAcceptedWhereTheyMakeTheRows) {
  EXPECT_EQ(settled(alltoall({{7, 2}}, {{0, 4, 1, 2}})), "accepted");
  EXPECT_EQ(settled(alltoall({{0}}, {{0, 0, 0, 0}})), "accepted");
  EXPECT_EQ(settled(alltoall({{8, 3}}, {})), "accepted");
  EXPECT_EQ(settled(alltoall({{8}, {3}}, {{}, {1, 1, 1, 0}})), "accepted");
}

TEST(Splits, AreRefusedWhereTheyDoNot) {
  EXPECT_EQ(
      settled(alltoall({{7, 2}}, {{1, 2, 3, 4}})),
      "alltoall 'x': splits [1, 2, 3, 4] must add up to the first dimension of the tensor, whose shape is [7, 2].");
  EXPECT_EQ(
      settled(alltoall({{7, 2}}, {{1, 2, 3, 0}})),
      "alltoall 'x': splits [1, 2, 3, 0] must add up to the first dimension of the tensor, whose shape is [7, 2].");
  EXPECT_EQ(settled(alltoall({{7}}, {{8, -1, 0, 0}})),
            "alltoall 'x': splits [8, -1, 0, 0] must add up to the first dimension of the tensor, whose shape is [7].");
  EXPECT_EQ(settled(alltoall({{7}}, {{-1, 8, 0, 0}})), "alltoall 'x': splits [-1, 8, 0, 0] has a negative number.");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(settled(alltoall({{7}}, {{kMost, kMost, 9, 0}})), "accepted");  // whose sum wraps to 7
  EXPECT_EQ(settled(alltoall({{3}}, {{1, 1, 1}})),
            "alltoall 'x': splits must have one number for each of the 4 ranks, these are 3.");
  EXPECT_EQ(
      settled(alltoall({{4}, {3}}, {{}, {1, 1, 2, 0}})),
      "alltoall 'x', tensor 1 of the group: splits [1, 1, 2, 0] must add up to the first dimension of the tensor, "
      "whose shape is [3].");
  EXPECT_EQ(settled(alltoall({{4}, {4}}, {{}})), "alltoall 'x': there are 2 tensors but splits for 1.");
  EXPECT_EQ(settled(alltoall({{6, 2}}, {})),
            "alltoall 'x': the first dimension of [6, 2] cannot be cut into 4 equal parts, one for each rank; give "
            "splits.");
}

TEST(Splits, AreRefusedAtOnceWhereThereAreNone) {
  Request reduction = allreduce({4});
  reduction.splits = {{1, 1, 1, 1}};
  EXPECT_EQ(refusal(reduction), "allreduce 'x': takes no splits.");
}

TEST(Splits, OfAScatterAreTheRootsAffair) {
  Request scatter = request(Collective::kScatter, {{DataType::kInt8, {5}}});
  EXPECT_EQ(settled(scatter), "accepted");  // uneven
  scatter.splits = {{9, 9}};
  EXPECT_EQ(settled(scatter), "accepted");  // of rank 0, and this is rank 1
  scatter.signature.root = kRank;
  EXPECT_EQ(settled(scatter), "scatter 'x': splits must have one number for each of the 4 ranks, these are 2.");
}

TEST(Splits, AreFilledInAndTakeTheFirstDimensionOutOfTheSignature) {
  Request some = alltoall({{8, 3}, {3, 5}}, {{}, {0, 0, 3, 0}});
  settle_splits(some, kSize, kRank);
  EXPECT_EQ(some.splits, (std::vector<std::vector<std::int64_t>>{{2, 2, 2, 2}, {0, 0, 3, 0}}));
  EXPECT_EQ(some.signature.tensors[0].shape, (Shape{0, 3}));
  EXPECT_EQ(some.signature.tensors[1].shape, (Shape{0, 5}));
  Request scatter = request(Collective::kScatter, {{DataType::kInt8, {6}}});
  settle_splits(scatter, kSize, 0);
  EXPECT_EQ(scatter.splits, (std::vector<std::vector<std::int64_t>>{{2, 2, 1, 1}}));
  Request of_nothing = alltoall({{3, 2}}, {});  // which cannot be
  settle_splits(of_nothing, kSize, kRank);
  EXPECT_EQ(of_nothing.splits, (std::vector<std::vector<std::int64_t>>{{0, 0, 0, 0}}));
  EXPECT_EQ(of_nothing.signature.tensors[0].shape, (Shape{0, 2}));
  Request reduction = allreduce({4});
  settle_splits(reduction, kSize, kRank);
  EXPECT_TRUE(reduction.splits.empty());
  EXPECT_EQ(reduction.signature.tensors[0].shape, (Shape{4}));
}

TEST(Outputs, OfAGroupAreGivenForAllOrForNone) {
  std::byte memory[64];
  Request group = request(Collective::kReducescatter, {{DataType::kInt8, {8}}, {DataType::kInt8, {9}}});
  for (TensorMemory& each : group.memory) each.output = nullptr;
  EXPECT_EQ(refusal(group), "accepted");
  group.memory[0].output = memory;
  EXPECT_EQ(refusal(group),
            "reducescatter 'x', tensor 1 of the group: give an output for every tensor of the group, or none.");
  group.signature.tensors[1].shape = {3};  // some rank has no row, and need give no memory for it
  EXPECT_EQ(refusal(group), "accepted");
}

}  // namespace
}  // namespace ciranda
