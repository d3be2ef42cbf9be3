// The way of calls: a coordinator chooses it from what all members have told, and ranks learn it from the log.
#include "agree/ways.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/named_participant.hpp"
#include "agree/signatures.hpp"

namespace ciranda::testing {
namespace {

constexpr TimePoint kNow{};
constexpr HomeId kGpu0 = home_on(0);
constexpr HomeId kGpu1 = home_on(1);

CoordinatorOptions on_one_host(int size = 2) {
  CoordinatorOptions options;
  options.size = size;
  options.shares_memory = true;
  return options;
}

TEST(Ways, PeerNeedsEveryTensorOnADeviceOfOneHost) {
  const CoordinatorOptions options = on_one_host();
  EXPECT_EQ(Ways(options).way_of(allreduce({4}), {kGpu0, kGpu1}), Way::kPeer);
  EXPECT_EQ(Ways(options).way_of(allreduce({4}), {kGpu0, kStagedHome}), Way::kStaged);
  CoordinatorOptions apart = options;
  apart.shares_memory = false;
  EXPECT_EQ(Ways(apart).way_of(allreduce({4}), {kGpu0, kGpu0}), Way::kStaged);
  const CoordinatorOptions many = on_one_host(65);
  EXPECT_EQ(Ways(many).way_of(allreduce({4}), std::vector<HomeId>(65, kGpu0)), Way::kStaged);
}

TEST(Ways, WhatHasNoKernelIsStaged) {
  const CoordinatorOptions options = on_one_host();
  Signature weighted = allreduce({4});
  weighted.is_weighted = true;
  const Signature adasum = allreduce({4}, DataType::kFloat32, ReduceOp::kAdasum);
  for (const Signature& signature : {weighted, adasum}) {
    EXPECT_EQ(Ways(options).way_of(signature, {kGpu0, kGpu0}), Way::kStaged);
  }
  EXPECT_EQ(Ways(options).way_of(allreduce({4}, DataType::kInt64, ReduceOp::kAverage), {kGpu0, kGpu0}), Way::kPeer);
  for (const CollectiveInfo& row : kCollectives) {
    Signature signature = allreduce({4});
    signature.collective = row.collective;
    const Way way = row.has_tensors ? Way::kPeer : Way::kStaged;
    EXPECT_EQ(Ways(options).way_of(signature, {kGpu0, kGpu0}), way) << row.name;
  }
}

// Whatever the world is like of which it is a set.
TEST(Ways, OneRankStaysOnItsDevice) {
  for (const bool goes_by_nccl : {false, true}) {
    CoordinatorOptions options;
    options.size = 1;
    options.goes_by_nccl = goes_by_nccl;
    Signature weighted = allreduce({4});
    weighted.is_weighted = true;
    Ways ways(options);
    for (const Signature& signature :
         {allreduce({4}), weighted, even_alltoall(4), allreduce({4}, DataType::kFloat32, ReduceOp::kAdasum)}) {
      for (const HomeId home : {kGpu0, kGpu1, kGpu0}) EXPECT_EQ(ways.way_of(signature, {home}), Way::kPeer);
      EXPECT_EQ(ways.way_of(signature, {kStagedHome}), Way::kStaged);
    }
  }
}

TEST(Ways, NcclNeedsNoSharedMemory) {
  CoordinatorOptions options;
  options.size = 2;
  options.goes_by_nccl = true;
  const auto way = [&](const Signature& signature, HomeId other = kGpu0) {
    return Ways(options).way_of(signature, {kGpu0, other});
  };
  Signature scan = allreduce({4});
  scan.collective = Collective::kScan;
  Signature weighted = allreduce({4});
  weighted.is_weighted = true;
  for (const Signature& signature : {scan, weighted, allreduce({4}, DataType::kFloat32, ReduceOp::kAdasum)}) {
    EXPECT_EQ(way(signature), Way::kStaged);
  }
  for (const Signature& signature : {allreduce({4}), allreduce({4}, DataType::kInt64, ReduceOp::kBitwiseAnd),
                                     allgather({4}), broadcast({4}, 0), even_alltoall(4)}) {
    EXPECT_EQ(way(signature), Way::kNccl);
  }
  EXPECT_EQ(way(allreduce({4}), kStagedHome), Way::kStaged);
}

TEST(Ways, WhatAllCaptureIsOfGraphsIfItGoesByNccl) {
  CoordinatorOptions options = on_one_host();
  EXPECT_EQ(Ways(options).way_of(allreduce({4}), {kGpu0 | kCaptured, kGpu1 | kCaptured}), Way::kPeer);
  options.goes_by_nccl = true;
  Ways ways(options);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu0 | kCaptured, kGpu1 | kCaptured}), Way::kGraph);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu1 | kCaptured, kGpu1 | kCaptured}), Way::kStaged);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu0, kGpu1}), Way::kNccl);
}

// A kernel of ours has up to 64 inputs.
// They help with memory on the devices that the lane had used before.
TEST(Ways, SumsGoByNcclWithoutThoseWhoHaveJoined) {
  CoordinatorOptions options;
  options.size = 2;
  options.goes_by_nccl = true;
  Ways ways(options);
  const Signature sum = allreduce({4});
  EXPECT_EQ(ways.way_without({1}, sum, {kGpu0, kStagedHome}), Way::kStaged);
  EXPECT_EQ(ways.way_of(sum, {kGpu0, kGpu1}), Way::kNccl);
  EXPECT_EQ(ways.way_without({1}, sum, {kGpu0, kStagedHome}), Way::kNccl);
  EXPECT_EQ(ways.way_without({1}, sum, {kStagedHome, kStagedHome}), Way::kStaged);
  for (const Signature& other : {allreduce({4}, DataType::kFloat32, ReduceOp::kProduct), allgather({4}),
                                 allreduce({4}, DataType::kInt64, ReduceOp::kAverage)}) {
    EXPECT_EQ(ways.way_without({1}, other, {kGpu0, kGpu1}), Way::kStaged);
  }
  options.adds_by_nccl = false;
  EXPECT_EQ(ways.way_without({1}, sum, {kGpu0, kGpu1}), Way::kStaged);
}

TEST(Ways, ManyRanksReduceByNcclWhatItReducesItself) {
  CoordinatorOptions options;
  options.size = 65;
  options.goes_by_nccl = true;
  const auto way = [&](const Signature& signature) {
    return Ways(options).way_of(signature, std::vector<HomeId>(65, kGpu0));
  };
  EXPECT_EQ(way(allgather({4})), Way::kNccl);
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
      EXPECT_EQ(way(allreduce({4}, dtype, op)), Way::kNccl);
    }
    EXPECT_EQ(way(allreduce({4}, dtype, ReduceOp::kMax)), Way::kStaged);
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(way(allreduce({4}, DataType::kInt64, op)), Way::kNccl);
    EXPECT_EQ(way(allreduce({4}, DataType::kUInt16, op)), Way::kStaged);
  }
  Signature scaled = allreduce({4}, DataType::kInt64);
  scaled.prescale = 0.5;
  Signature mixed = allreduce({4});
  mixed.tensors.push_back({DataType::kComplex64, {4}});
  for (const Signature& signature : {scaled, mixed, allreduce({4}, DataType::kInt64, ReduceOp::kAverage)}) {
    EXPECT_EQ(way(signature), Way::kStaged);
  }
  options.adds_by_nccl = false;
  EXPECT_EQ(way(allreduce({4})), Way::kStaged);
}

// Its memory is on that of its first call.
TEST(Ways, ALaneHasOneDeviceOfEachRank) {
  const CoordinatorOptions options = on_one_host();
  Ways ways(options);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu0, kStagedHome}), Way::kStaged);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu0, kGpu1}), Way::kPeer);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu1, kGpu1}), Way::kStaged);
  EXPECT_EQ(ways.way_of(allreduce({4}), {kGpu0, kGpu1}), Way::kPeer);
}

// Two ranks and their coordinator; each call is made by both.
class Pair {
 public:
  explicit Pair(const CoordinatorOptions& options = on_one_host()) : coordinator_(options) {}

  // The ways by which both ranks execute a sum of this name, or "?" if they fail. `reports`: how they have told it.
  std::string sum(const std::string& name, HomeId home_0, HomeId home_1) {
    reports_.clear();
    const HomeId homes[] = {home_0, home_1};
    for (int rank = 0; rank < 2; ++rank) {
      Request call = request(name, allreduce({rank == 1 ? length_of_1_ : 4}));
      call.home = homes[rank];
      Message message = ranks_[rank]->submit(call, 0);
      reports_ += std::holds_alternative<RequestMessage>(message) ? "full " : "ready ";
      EXPECT_TRUE(coordinator_.on_message(rank, std::move(message), kNow).ok());
    }
    std::string ways;
    for (const LogEntry& entry : coordinator_.take_entries(true)) {
      for (const auto& rank : ranks_) {
        const Result<Participant::Action> action = rank->apply(entry);
        EXPECT_TRUE(action.ok()) << action.status().message();
        const auto* executed = std::get_if<Participant::Execute>(&action.value());
        ways += executed == nullptr ? "? " : name_of(executed->requests.front().way);
      }
    }
    return ways;
  }
  const std::string& reports() const { return reports_; }
  void let_ranks_disagree(bool they_do) { length_of_1_ = they_do ? 5 : 4; }

 private:
  static const char* name_of(Way way) {
    constexpr const char* kNames[] = {"host ", "staged ", "peer ", "nccl ", "graph "};
    return kNames[static_cast<std::size_t>(way)];
  }

  Coordinator coordinator_;
  std::unique_ptr<NamedParticipant> ranks_[2] = {std::make_unique<NamedParticipant>(0),
                                                 std::make_unique<NamedParticipant>(1)};
  std::string reports_;
  std::int64_t length_of_1_ = 4;
};

// It is no mismatch, and the steady state costs nothing.
TEST(Ways, AHomeThatChangesIsToldOnceInFull) {
  Pair pair;
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu0), "peer peer ");
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu0), "peer peer ");
  EXPECT_EQ(pair.reports(), "ready ready ");
  EXPECT_EQ(pair.sum("a", kGpu0, kStagedHome), "staged staged ");
  EXPECT_EQ(pair.reports(), "ready full ");
  EXPECT_EQ(pair.sum("a", kGpu0, kStagedHome), "staged staged ");
  EXPECT_EQ(pair.reports(), "ready ready ");
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu0), "peer peer ");
  EXPECT_EQ(pair.reports(), "ready full ");
}

// What a call that failed has told of homes is forgotten on both sides.
TEST(Ways, AHomeOfACallThatFailsIsNotKept) {
  Pair pair;
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu0), "peer peer ");
  pair.let_ranks_disagree(true);
  EXPECT_EQ(pair.sum("a", kGpu0, kStagedHome), "? ? ");
  pair.let_ranks_disagree(false);
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu0), "peer peer ");
  EXPECT_EQ(pair.sum("a", kGpu0, kStagedHome), "staged staged ");
}

// Also where ranks have made it by NCCL, but from other devices, or not all capture it; the next ones are as ever.
TEST(Ways, WhatIsCapturedFailsUnlessItCanBeOfGraphs) {
  CoordinatorOptions options = on_one_host();
  options.goes_by_nccl = true;
  Pair pair(options);
  constexpr HomeId kCaptured0 = kGpu0 | kCaptured;
  constexpr HomeId kCaptured1 = kGpu1 | kCaptured;
  EXPECT_EQ(pair.sum("a", kCaptured0, kCaptured1), "? ? ");
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu1), "nccl nccl ");
  EXPECT_EQ(pair.sum("a", kCaptured1, kCaptured1), "? ? ");
  EXPECT_EQ(pair.sum("a", kCaptured0, kGpu1), "? ? ");
  EXPECT_EQ(pair.sum("a", kCaptured0, kCaptured1), "graph graph ");
  EXPECT_EQ(pair.sum("a", kCaptured0, kCaptured1), "graph graph ");
  EXPECT_EQ(pair.reports(), "full full ");
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu1), "nccl nccl ");
  EXPECT_EQ(pair.sum("a", kGpu0, kGpu1), "nccl nccl ");
  EXPECT_EQ(pair.reports(), "ready ready ");
}

// Names that go other ways are not fused.
TEST(Ways, OnlyCallsOfOneWayTravelTogether) {
  Coordinator coordinator(on_one_host());
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [name, home] : {std::pair("a", kGpu0), std::pair("b", kStagedHome), std::pair("c", kStagedHome)}) {
      RequestMessage message{name, allreduce({4}), true, true};
      message.home = home;
      EXPECT_TRUE(coordinator.on_request(rank, message, kNow).ok());
    }
  }
  std::vector<std::size_t> sizes;
  for (const LogEntry& entry : coordinator.take_entries(true)) {
    sizes.push_back(std::get<ExecuteEntry>(entry).items.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 2}));
}

}  // namespace
}  // namespace ciranda::testing
