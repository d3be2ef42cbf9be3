// Calls: each is of its own signature, and of none that differs in anything.
#include "call/call.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace ciranda {
namespace {

constexpr std::array<std::int64_t, 2> kShape{3, 4};

Call call() {
  static std::array<float, 12> values{};
  Call made{{Collective::kAllreduce, ReduceOp::kAverage, -1, 0.5, 3, true}, "x"};
  made.shape = kShape;
  made.process_set = 3;
  made.lane = 5;
  made.priority = 7;
  made.hints = {.is_deferrable = true, .is_early = true};
  made.memory = {reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<std::byte*>(values.data())};
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
  EXPECT_EQ(request.memory.front().input, call().memory.input);
  EXPECT_EQ(request.memory.front().output, call().memory.output);
  EXPECT_TRUE(is_of(request.signature, call()));
  EXPECT_EQ(request.signature.n_bytes(), call().n_bytes());
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
  Call again = call();
  again.memory = {reinterpret_cast<const std::byte*>(other.data()), reinterpret_cast<std::byte*>(other.data() + 1)};
  again.priority = -3;
  again.hints = {.is_awaited = true, .calls_back_directly = true};
  ASSERT_TRUE(make_again(request, again));
  EXPECT_EQ(request.memory.front().input, again.memory.input);
  EXPECT_EQ(request.memory.front().output, again.memory.output);
  EXPECT_EQ(request.priority, -3);
  EXPECT_TRUE(request.is_awaited);
  EXPECT_TRUE(request.calls_back_directly);
  EXPECT_FALSE(request.is_deferrable);
  EXPECT_FALSE(request.is_early);
  EXPECT_TRUE(is_of(request.signature, call()));
}

TEST(Calls, AreNotMadeAgainOfAnotherRequest) {
  constexpr std::array<std::int64_t, 2> kTurned{4, 3};
  const std::vector<std::function<void(Request&, Call&)>> changes{
      [](Request&, Call& c) { c.op = ReduceOp::kSum; },
      [](Request&, Call& c) { c.postscale = 2; },
      [](Request&, Call& c) { c.dtype = DataType::kInt32; },
      [&](Request&, Call& c) { c.shape = kTurned; },
      [](Request&, Call& c) { c.process_set = 4; },
      [](Request&, Call& c) { c.lane = 6; },
      [](Request&, Call& c) { c.memory.place.type = DeviceType{2}; },
      [](Request&, Call& c) { c.memory = {}; },
      [](Request&, Call& c) { c.memory.output = nullptr; },
      [](Request& r, Call&) { r.signature.is_weighted = true; },
      [](Request& r, Call&) { r.signature.needs_all = true; },
      [](Request& r, Call&) { r.refusal = Status::aborted("no"); },
      [](Request& r, Call&) { r.has_room_for_all = true; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Request request = make_request(call());
    Call again = call();
    again.priority = 1;
    changes[i](request, again);
    EXPECT_FALSE(make_again(request, again)) << "change " << i;
    EXPECT_EQ(request.memory.front().input, call().memory.input) << "change " << i;
    EXPECT_EQ(request.priority, 7) << "change " << i;
  }
  Call gathered = call();
  static_cast<Terms&>(gathered) = {.collective = Collective::kAllgather};
  Request request = make_request(gathered);
  EXPECT_TRUE(make_again(request, gathered));
  gathered.memory.output = nullptr;  // the engine is to allocate
  EXPECT_FALSE(make_again(request, gathered));
}

// What the table of collectives says: which may, which of them need memory for the result, and which need rows.
TEST(Calls, CanBeRepeatedWhereTheTableSaysSo) {
  for (const CollectiveInfo& row : kCollectives) {
    Call made = call();
    made.collective = row.collective;
    EXPECT_EQ(can_be_repeated(made), row.goes_direct && row.has_tensors) << row.name;
    if (!can_be_repeated(made)) continue;
    made.memory.output = nullptr;
    EXPECT_EQ(can_be_repeated(made), row.output == Output::kMayBeGiven || row.rows == Rows::kJoined) << row.name;
    made = call();
    made.collective = row.collective;
    made.shape = {};
    EXPECT_EQ(can_be_repeated(made), row.rows == Rows::kWhole) << row.name;
    made.memory.input = nullptr;
    EXPECT_FALSE(can_be_repeated(made)) << row.name;
  }
}

TEST(Calls, AreOneTensorOfARequest) {
  Request request = make_request(call());
  std::array<float, 2> second{};
  request.signature.tensors.push_back({DataType::kFloat32, {2}});
  request.memory.push_back({reinterpret_cast<const std::byte*>(second.data()), nullptr});
  const Call first = call_of(request, 0);
  EXPECT_TRUE(is_of(make_request(call()).signature, first));
  EXPECT_EQ(first.memory.input, call().memory.input);
  EXPECT_EQ(first.process_set, 3U);
  EXPECT_EQ(first.lane, 5U);
  EXPECT_EQ(call_of(request, 1).n_bytes(), sizeof second);
  EXPECT_EQ(call_of(request, 1).memory.input, reinterpret_cast<const std::byte*>(second.data()));
  EXPECT_EQ(call_of(request, 1).postscale, 3);
}

TEST(Calls, OfAScalarHaveOneElement) {
  Call scalar = call();
  scalar.shape = {};
  EXPECT_EQ(count_of(scalar.shape), 1U);
  EXPECT_EQ(scalar.n_bytes(), 4U);
  EXPECT_TRUE(is_of(make_request(scalar).signature, scalar));
}

}  // namespace
}  // namespace ciranda
