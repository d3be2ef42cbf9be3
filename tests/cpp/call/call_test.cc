// Calls: each is of its own signature, and of none that differs in anything.
#include "call/call.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "call_of_one.hpp"

namespace ciranda {
namespace {

constexpr std::array<std::int64_t, 2> kShape{3, 4};

testing::CallOfOne call() {
  static std::array<float, 12> values{};
  testing::CallOfOne made({Collective::kAllreduce, ReduceOp::kAverage, -1, 0.5, 3, true}, "x");
  made.tensor.shape = kShape;
  made.process_set = 3;
  made.lane = 5;
  made.priority = 7;
  made.hints = {.is_deferrable = true, .is_early = true};
  made.tensor.memory = {reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<std::byte*>(values.data())};
  return made;
}

TEST(Calls, MakeARequestOfTheirOwnSignature) {
  const Request request = make_request(call());
  EXPECT_EQ(request.name, "x");
  EXPECT_TRUE(request.is_deferrable);
  EXPECT_TRUE(request.is_early);
  EXPECT_FALSE(request.is_awaited);
  EXPECT_TRUE(request.is_cacheable);
  EXPECT_EQ(request.process_set, 3U);
  EXPECT_EQ(request.lane, 5U);
  EXPECT_EQ(request.priority, 7);
  ASSERT_EQ(request.memory.size(), 1U);
  EXPECT_EQ(request.memory.front().input, call().tensor.memory.input);
  EXPECT_EQ(request.memory.front().output, call().tensor.memory.output);
  EXPECT_TRUE(is_of(request.signature, call()));
  EXPECT_EQ(request.signature.n_bytes(), call().tensor.n_bytes());
}

TEST(Calls, AreOfNoOtherSignature) {
  const std::vector<std::function<void(Signature&)>> changes{
      [](Signature& s) { s.collective = Collective::kBroadcast; },
      [](Signature& s) { s.op = ReduceOp::kSum; },
      [](Signature& s) { s.root = 0; },
      [](Signature& s) { s.prescale = 1; },
      [](Signature& s) { s.postscale = 1; },
      [](Signature& s) { s.divides_by_all = false; },
      [](Signature& s) { s.is_weighted = true; },
      [](Signature& s) { s.needs_all = true; },
      [](Signature& s) { s.arguments = {1}; },
      [](Signature& s) { s.tensors.push_back(s.tensors.front()); },
      [](Signature& s) { s.tensors.clear(); },
      [](Signature& s) { s.tensors.front().dtype = DataType::kInt32; },
      [](Signature& s) {
        s.tensors.front().shape = {4, 3};
      },
      [](Signature& s) {
        s.tensors.front().shape = {3, 4, 1};
      },
      [](Signature& s) { s.tensors.front().shape = {3}; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Signature other = make_request(call()).signature;
    changes[i](other);
    EXPECT_FALSE(is_of(other, call())) << "change " << i;
  }
}

// All that a later call of the name may differ by.
TEST(Calls, AreMadeAgainWithTheirOwnMemoryPriorityAndHints) {
  Request request = make_request(call());
  std::array<float, 12> other{};
  testing::CallOfOne again = call();
  again.tensor.memory = {reinterpret_cast<const std::byte*>(other.data()),
                         reinterpret_cast<std::byte*>(other.data() + 1)};
  again.priority = -3;
  again.hints = {.is_awaited = true, .calls_back_directly = true};
  ASSERT_TRUE(make_again(request, again));
  EXPECT_EQ(request.memory.front().input, again.tensor.memory.input);
  EXPECT_EQ(request.memory.front().output, again.tensor.memory.output);
  EXPECT_EQ(request.priority, -3);
  EXPECT_TRUE(request.is_awaited);
  EXPECT_TRUE(request.calls_back_directly);
  EXPECT_FALSE(request.is_deferrable);
  EXPECT_FALSE(request.is_early);
  EXPECT_TRUE(is_of(request.signature, call()));
}

TEST(Calls, AreNotMadeAgainOfAnotherRequest) {
  constexpr std::array<std::int64_t, 2> kTurned{4, 3};
  const std::vector<std::function<void(Request&, testing::CallOfOne&)>> changes{
      [](Request&, testing::CallOfOne& c) { c.op = ReduceOp::kSum; },
      [](Request&, testing::CallOfOne& c) { c.postscale = 2; },
      [](Request&, testing::CallOfOne& c) { c.tensor.dtype = DataType::kInt32; },
      [&](Request&, testing::CallOfOne& c) { c.tensor.shape = kTurned; },
      [](Request&, testing::CallOfOne& c) { c.process_set = 4; },
      [](Request&, testing::CallOfOne& c) { c.lane = 6; },
      [](Request&, testing::CallOfOne& c) { c.tensor.memory.place.type = DeviceType{2}; },
      [](Request&, testing::CallOfOne& c) { c.tensor.memory = {}; },
      [](Request&, testing::CallOfOne& c) { c.tensor.memory.output = nullptr; },
      [](Request& r, testing::CallOfOne&) { r.signature.is_weighted = true; },
      [](Request& r, testing::CallOfOne&) { r.signature.needs_all = true; },
      [](Request& r, testing::CallOfOne&) { r.refusal = Status::aborted("no"); },
      [](Request& r, testing::CallOfOne&) { r.has_room_for_all = false; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Request request = make_request(call());
    testing::CallOfOne again = call();
    again.priority = 1;
    changes[i](request, again);
    EXPECT_FALSE(make_again(request, again)) << "change " << i;
    EXPECT_EQ(request.memory.front().input, call().tensor.memory.input) << "change " << i;
    EXPECT_EQ(request.priority, 7) << "change " << i;
  }
  testing::CallOfOne gathered = call();
  static_cast<Terms&>(gathered) = {.collective = Collective::kAllgather};
  Request request = make_request(gathered);
  EXPECT_TRUE(make_again(request, gathered));
  gathered.tensor.memory.output = nullptr;  // the engine is to allocate
  gathered.has_room_for_all = false;
  EXPECT_FALSE(make_again(request, gathered));
}

// What the table of collectives says: which may, which of them need memory for the result, and which need rows.
TEST(Calls, CanBeRepeatedWhereTheTableSaysSo) {
  for (const CollectiveInfo& row : kCollectives) {
    testing::CallOfOne made = call();
    made.collective = row.collective;
    EXPECT_EQ(can_be_repeated(made), row.goes_direct && row.has_tensors) << row.name;
    if (!can_be_repeated(made)) continue;
    made.tensor.memory.output = nullptr;
    made.has_room_for_all = false;
    EXPECT_EQ(can_be_repeated(made), row.output == Output::kMayBeGiven || row.rows == Rows::kJoined) << row.name;
    made = call();
    made.collective = row.collective;
    made.tensor.shape = {};
    EXPECT_EQ(can_be_repeated(made), row.rows == Rows::kWhole) << row.name;
    made.tensor.memory.input = nullptr;
    EXPECT_FALSE(can_be_repeated(made)) << row.name;
  }
}

// What a call may have beside one tensor is not left out of its request, and is not for a repeated call.
TEST(Calls, MakeRequestsOfAllThatTheyHave) {
  constexpr std::array<std::int64_t, 1> kTwo{2};
  const std::vector<std::vector<std::int64_t>> splits{{1, 2}, {2, 0}};
  const std::array<std::int64_t, 3> arguments{5, 6, 7};
  const std::array<CallTensor, 2> tensors{call().tensor, CallTensor{DataType::kInt32, kTwo}};
  const std::vector<std::function<void(Call&)>> additions{
      [&](Call& c) { c.tensors = tensors; },     [&](Call& c) { c.splits = splits; },
      [&](Call& c) { c.arguments = arguments; }, [](Call& c) { c.weight = 0.25; },
      [](Call& c) { c.needs_all = true; },       [](Call& c) { c.is_cacheable = false; },
      [](Call& c) { c.tensors = {}; },
  };
  Call all = call();
  for (std::size_t i = 0; i < additions.size(); ++i) {
    testing::CallOfOne one = call();
    ASSERT_TRUE(can_be_repeated(one));
    additions[i](one);
    EXPECT_FALSE(can_be_repeated(one)) << "addition " << i;
    if (i + 1 < additions.size()) additions[i](all);
  }
  const Request request = make_request(all);
  ASSERT_EQ(request.signature.tensors.size(), 2U);
  EXPECT_EQ(request.signature.tensors[1], (TensorSignature{DataType::kInt32, {2}}));
  EXPECT_EQ(request.memory.size(), 2U);
  EXPECT_EQ(request.splits, splits);
  EXPECT_EQ(request.signature.arguments, (std::vector<std::int64_t>{5, 6, 7}));
  EXPECT_TRUE(request.signature.is_weighted);
  EXPECT_EQ(request.weight, 0.25);
  EXPECT_TRUE(request.signature.needs_all);
  EXPECT_FALSE(request.is_cacheable);
  EXPECT_EQ(tensor_of(request, 1).n_bytes(), 8U);
  EXPECT_EQ(tensor_of(request, 0).memory.input, call().tensor.memory.input);
}

TEST(Calls, OfAScalarHaveOneElement) {
  testing::CallOfOne scalar = call();
  scalar.tensor.shape = {};
  EXPECT_EQ(count_of(scalar.tensor.shape), 1U);
  EXPECT_EQ(scalar.tensor.n_bytes(), 4U);
  EXPECT_TRUE(is_of(make_request(scalar).signature, scalar));
}

}  // namespace
}  // namespace ciranda
