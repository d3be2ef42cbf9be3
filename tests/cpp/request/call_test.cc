// Calls: each is of its own signature, and of none that differs in anything.
#include "request/call.hpp"

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
  Call made{.name = "x", .op = ReduceOp::kAverage, .prescale = 0.5, .postscale = 3, .divides_by_all = true};
  made.shape = kShape;
  made.priority = 7;
  made.memory = {reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<std::byte*>(values.data())};
  return made;
}

TEST(Calls, MakeARequestOfTheirOwnSignature) {
  const Request request = make_request(call());
  EXPECT_EQ(request.name, "x");
  EXPECT_TRUE(request.is_awaited);
  EXPECT_TRUE(request.is_cacheable);
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

TEST(Calls, OfAScalarHaveOneElement) {
  Call scalar = call();
  scalar.shape = {};
  EXPECT_EQ(scalar.count(), 1U);
  EXPECT_EQ(scalar.n_bytes(), 4U);
  EXPECT_TRUE(is_of(make_request(scalar).signature, scalar));
}

}  // namespace
}  // namespace ciranda
