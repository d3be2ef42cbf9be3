// Direct rounds of calls with several tensors, of other shapes and types: that ranks meet for them, that the results
// are exact, and which groups are too large.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/small_sums.hpp"
#include "engine/watchdog.hpp"
#include "engine/world.hpp"
#include "transport/arena.hpp"

namespace ciranda {
namespace {

using testing::awaited;
using testing::meet;
using testing::patient;
using testing::Watchdog;
using testing::World;

using Bytes = std::vector<std::byte>;
using Values = std::vector<std::int64_t>;

constexpr std::int64_t kGroupWidth = 3;

struct GroupTensor {
  DataType dtype;
  std::int64_t n_rows;
  Values values_of(int rank, int step) const {
    Values values(static_cast<std::size_t>(n_rows * kGroupWidth));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<std::int64_t>(i % 97) + 100 * rank + 7 * (step % 13);
    }
    return values;
  }
};
using Group = std::vector<GroupTensor>;

template <typename T>
Bytes bytes_of(const Values& values) {
  const std::vector<T> converted(values.begin(), values.end());
  Bytes bytes(converted.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), converted.data(), bytes.size());
  return bytes;
}
Bytes bytes_of(DataType dtype, const Values& values) {
  if (dtype == DataType::kInt32) return bytes_of<std::int32_t>(values);
  return dtype == DataType::kFloat32 ? bytes_of<float>(values) : bytes_of<double>(values);
}

Values rows(const Values& values, std::int64_t first, std::int64_t n) {
  return {values.begin() + first * kGroupWidth, values.begin() + (first + n) * kGroupWidth};
}
void append(Values& to, const Values& more) { to.insert(to.end(), more.begin(), more.end()); }

// What rank `self` gets of a tensor.
Values expected(Collective collective, const GroupTensor& tensor, int n_ranks, int self, int step) {
  Values sum(static_cast<std::size_t>(tensor.n_rows * kGroupWidth));
  Values all;
  Values exchanged;
  for (int rank = 0; rank < n_ranks; ++rank) {
    const Values own = tensor.values_of(rank, step);
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
    append(all, own);
    const std::int64_t part = tensor.n_rows / n_ranks;
    append(exchanged, rows(own, self * part, part));
  }
  switch (collective) {
    case Collective::kAllreduce: return sum;
    case Collective::kBroadcast: return tensor.values_of(1, step);
    case Collective::kAllgather: return all;
    case Collective::kReducescatter: {
      const std::vector<std::int64_t> splits = even_splits(tensor.n_rows, n_ranks);
      std::int64_t first = 0;
      for (int rank = 0; rank < self; ++rank) first += splits[static_cast<std::size_t>(rank)];
      return rows(sum, first, splits[static_cast<std::size_t>(self)]);
    }
    default: return exchanged;
  }
}

enum class Output : std::uint8_t { kIn, kApart };

bool allocates(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kReducescatter;
}

// A call of a group, which it makes once.
class GroupCall {
 public:
  GroupCall(Collective collective, Group group, Output output)
      : group_(std::move(group)), collective_(collective), output_(output) {}

  void make(Engine& engine, int step) {
    Request request;
    request.name = "group";
    request.signature.collective = collective_;
    if (collective_ == Collective::kBroadcast) request.signature.root = 1;
    request.has_room_for_all = collective_ == Collective::kAlltoall;
    std::vector<Bytes> inputs;
    std::vector<Bytes> outputs;
    for (const GroupTensor& tensor : group_) {
      inputs.push_back(bytes_of(tensor.dtype, tensor.values_of(engine.rank(), step)));
      outputs.push_back(Bytes(output_ == Output::kIn ? 0 : inputs.back().size()));
      request.signature.tensors.push_back({tensor.dtype, {tensor.n_rows, kGroupWidth}});
    }
    for (std::size_t i = 0; i < group_.size(); ++i) {
      std::byte* output = output_ == Output::kIn ? inputs[i].data() : outputs[i].data();
      request.memory.push_back({inputs[i].data(), allocates(collective_) ? nullptr : output});
    }
    const Engine::OperationPtr operation = submit_request(engine, awaited(std::move(request)));
    const Status status = engine.wait(operation);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < group_.size(); ++i) {
      const Values wanted = expected(collective_, group_[i], engine.size(), engine.rank(), step);
      const Bytes& given = output_ == Output::kIn ? inputs[i] : outputs[i];
      const Bytes got = allocates(collective_) ? output_of(*operation, i) : given;
      EXPECT_TRUE(got == bytes_of(group_[i].dtype, wanted)) << "tensor " << i << " of step " << step;
    }
  }

 private:
  static Bytes output_of(const Operation& operation, std::size_t i) {
    const OutputBuffer& buffer = operation.outputs().at(i);
    return {buffer.data.get(), buffer.data.get() + buffer.n_bytes};
  }

  Group group_;
  Collective collective_;
  Output output_;
};

constexpr auto kCollectives = {Collective::kAllreduce, Collective::kBroadcast, Collective::kAllgather,
                               Collective::kReducescatter, Collective::kAlltoall};

// How many of so many further calls of the group were carried out by direct rounds.
std::uint64_t n_met_of(Engine& engine, Collective collective, const Group& group, Output output,
                       std::uint64_t n_calls) {
  GroupCall call(collective, group, output);
  call.make(engine, 0);
  return meet(engine, n_calls, [&](int step) { call.make(engine, step + 1); });
}

void expect_met(int n_ranks, const Group& group, std::uint64_t n_calls = 12) {
  for (const Collective collective : kCollectives) {
    for (const Output output : {Output::kIn, Output::kApart}) {
      SCOPED_TRACE(std::string(to_string(collective)) + (output == Output::kIn ? " in place" : ""));
      World world(n_ranks, patient());
      world.run([&](Engine& engine) { EXPECT_EQ(n_met_of(engine, collective, group, output, n_calls), n_calls); });
    }
  }
}

TEST(GroupsInDirectRounds, OfTwoRanksUpToAMebibyte) {
  const Watchdog watchdog("groups of two ranks");
  expect_met(2, {{DataType::kFloat32, 2}, {DataType::kInt32, 2000}, {DataType::kFloat64, 14}});
  expect_met(2, {{DataType::kFloat64, 6}, {DataType::kFloat32, 0}, {DataType::kInt32, 40'000}, {DataType::kInt32, 2}},
             3);
}

TEST(GroupsInDirectRounds, OfSeveralRanks) {
  const Watchdog watchdog("groups of four ranks");
  expect_met(4, {{DataType::kFloat32, 4}, {DataType::kInt32, 404}, {DataType::kFloat64, 8}});
}

// 1 MiB, with each tensor but the last in whole cache lines, and a byte more.
TEST(GroupsInDirectRounds, AreNotForMore) {
  const Watchdog watchdog("groups that are too large");
  constexpr std::int64_t kRest = (std::int64_t{1} << 20) - 64;
  for (const bool is_too_large : {false, true}) {
    World world(2, patient());
    world.run([&](Engine& engine) {
      Bytes small(1);
      Bytes large(static_cast<std::size_t>(kRest + (is_too_large ? 1 : 0)), std::byte{1});
      const auto call = [&](int /*step*/) {
        Request request;
        request.name = "group";
        request.signature.op = ReduceOp::kMax;
        for (Bytes* each : {&small, &large}) {
          request.signature.tensors.push_back({DataType::kUInt8, {static_cast<std::int64_t>(each->size())}});
          request.memory.push_back({each->data(), each->data()});
        }
        ASSERT_TRUE(engine.wait(submit_request(engine, awaited(std::move(request)))).ok());
      };
      call(0);
      if (is_too_large) {
        for (int step = 0; step < 4; ++step) call(step);
        EXPECT_EQ(engine.n_direct(), 0U);
      } else {
        EXPECT_EQ(meet(engine, 4, call), 4U);
      }
    });
  }
}

}  // namespace
}  // namespace ciranda
