#include "backend/native.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backend/chosen.hpp"
#include "transport/lane_mesh.hpp"
#include "transport/loopback_fabric.hpp"

namespace ciranda {
namespace {

using testing::chosen;

constexpr std::size_t kSlotBytes = 4096;

LoopbackOptions fabric_options(bool with_arena) {
  LoopbackOptions options;
  options.with_arena = with_arena;
  options.slot_bytes = kSlotBytes;
  return options;
}

LoopbackOptions on_hosts(std::vector<std::string> hosts) {
  LoopbackOptions options = fabric_options(true);
  options.hosts = std::move(hosts);
  return options;
}

Plan allreduce_plan(std::vector<float>& values) {
  Plan plan;
  plan.collective = Collective::kAllreduce;
  plan.dtype = DataType::kFloat32;
  plan.op = ReduceOp::kAverage;
  plan.prescale = 3;
  auto* bytes = reinterpret_cast<std::byte*>(values.data());
  plan.n_bytes = values.size() * sizeof(float);
  plan.input.add(bytes, values.size() * sizeof(float));
  plan.output.add(bytes, values.size() * sizeof(float));
  return plan;
}

struct Choice {
  bool with_arena;
  std::size_t one_shot_bytes;
  Collective collective;
  std::size_t n_bytes;
  std::string_view expected;
};

TEST(NativeBackendTest, ChoosesTheAlgorithmByMemoryAndSize) {
  const std::array choices{
      Choice{true, 2048, Collective::kAllreduce, 4, "shm one-shot"},
      Choice{true, 2048, Collective::kAllreduce, 2048, "shm one-shot"},
      Choice{true, 2048, Collective::kAllreduce, 2049, "shm two-shot"},
      Choice{true, 0, Collective::kAllreduce, 1, "shm two-shot"},
      Choice{true, 1 << 20, Collective::kAllreduce, kSlotBytes, "shm one-shot"},
      Choice{true, 1 << 20, Collective::kAllreduce, kSlotBytes + 1, "shm two-shot"},  // one shot must fit in a slot
      Choice{true, 2048, Collective::kBroadcast, 1 << 20, "shm broadcast"},
      Choice{true, 2048, Collective::kAllgather, 1 << 20, "shm exchange"},
      Choice{true, 2048, Collective::kReduce, 2048, "shm one-shot"},
      Choice{true, 2048, Collective::kReduce, 2049, "shm two-shot"},
      Choice{true, 2048, Collective::kReducescatter, 1, "shm reducescatter"},
      Choice{true, 2048, Collective::kAlltoall, 1, "shm exchange"},
      Choice{true, 2048, Collective::kGather, 1, "shm exchange"},
      Choice{true, 2048, Collective::kScatter, 1, "shm exchange"},
      Choice{false, 2048, Collective::kAllreduce, 2048, "direct one-shot"},
      Choice{false, 2048, Collective::kAllreduce, 2049, "direct two-shot"},
      Choice{false, 1 << 20, Collective::kAllreduce, 1 << 20, "direct one-shot"},  // no slot to fit in
      Choice{false, 2048, Collective::kBroadcast, 1, "direct star"},
      Choice{false, 2048, Collective::kAllgather, 1, "direct exchange"},
      Choice{false, 2048, Collective::kReduce, 2048, "direct one-shot"},
      Choice{false, 2048, Collective::kReduce, 2049, "direct two-shot"},
      Choice{false, 2048, Collective::kReducescatter, 1, "direct reducescatter"},
      Choice{false, 2048, Collective::kAlltoall, 1, "direct exchange"},
      Choice{false, 2048, Collective::kGather, 1, "direct exchange"},
      Choice{false, 2048, Collective::kScatter, 1, "direct exchange"},
  };
  for (const Choice& choice : choices) {
    LoopbackFabric fabric(2, fabric_options(choice.with_arena));
    const auto mesh = fabric.take_mesh(0);
    NativeOptions native;
    native.one_shot_bytes = choice.one_shot_bytes;
    const NativeBackend backend(*mesh, native);
    EXPECT_EQ(chosen(backend, choice.collective, choice.n_bytes), choice.expected) << choice.n_bytes << " bytes";
  }
}

// By hosts where that makes less to send than each with each, and not for small messages.
TEST(NativeBackendTest, HostsCombineTheirOwnWhereThatHelps) {
  struct Layout {
    std::vector<std::string> hosts;
    std::string_view expected;
  };
  const std::array layouts{
      Layout{{"a", "a", "b", "b"}, "direct by-hosts"},
      Layout{{"a", "a", "b", "b", "c", "c"}, "direct by-hosts"},
      Layout{{"a", "a", "a", "a", "b", "b", "b", "b"}, "direct by-hosts"},
      Layout{{"a", "a", "a", "b"}, "direct two-shot"},
      Layout{{"a", "a", "b", "c"}, "direct by-hosts"},
      Layout{{"a", "b", "a", "b"}, "direct two-shot"},
      Layout{{"a", "a", "b", "b", "a", "a"},
             "direct by-hosts"},  // the last are far from the first, but that harms none
      Layout{{"a", "a", "b", "b", "b", "b"}, "direct by-hosts"},
      Layout{{"a", "a", "a", "b", "b", "b"}, "direct by-hosts"},  // the middle ones of each half for themselves
      Layout{{"a", "b", "b", "c", "c"}, "direct two-shot"},       // the pairs are not those of the tree
      Layout{{"a", "b"}, "direct two-shot"},
  };
  for (const Layout& layout : layouts) {
    LoopbackFabric fabric(static_cast<int>(layout.hosts.size()), on_hosts(layout.hosts));
    const auto mesh = fabric.take_mesh(0);
    NativeOptions native;
    native.one_shot_bytes = 2048;
    const NativeBackend backend(*mesh, native);
    EXPECT_EQ(chosen(backend, Collective::kAllreduce, 1 << 20), layout.expected) << layout.hosts.size();
    EXPECT_EQ(chosen(backend, Collective::kAllreduce, 2049), "direct two-shot");
    EXPECT_EQ(chosen(backend, Collective::kReduce, 1 << 20), "direct two-shot");
  }
}

// A setting that names an algorithm is heeded wherever there is such.
TEST(NativeBackendTest, TheAlgorithmMayBePrescribed) {
  struct Case {
    std::vector<std::string> hosts;
    std::string algorithm;
    std::size_t n_bytes;
    std::string_view expected;
  };
  const std::array cases{
      Case{{"a", "a"}, "one-shot", kSlotBytes, "shm one-shot"},
      Case{{"a", "a"}, "one-shot", kSlotBytes + 1, "shm two-shot"},
      Case{{"a", "a"}, "two-shot", 4, "shm two-shot"},
      Case{{"a", "a"}, "by-hosts", 4, "shm one-shot"},  // there is no such thing here
      Case{{"a", "a", "b", "b"}, "one-shot", 64 << 20, "direct one-shot"},
      Case{{"a", "a", "b", "b"}, "two-shot", 4, "direct two-shot"},
      Case{{"a", "a", "b", "b"}, "two-shot", 64 << 20, "direct two-shot"},
      Case{{"a", "a", "b", "b"}, "by-hosts", 4, "direct by-hosts"},
      Case{{"a", "b", "b"}, "by-hosts", 64 << 20, "direct two-shot"},
      Case{{"a", "a", "b"}, "by-hosts", 64 << 20, "direct by-hosts"},
      Case{{"a", "b", "b"}, "doubling", 64 << 20, "direct doubling"},
      Case{{"a", "b"}, "doubling", 4, "direct one-shot"},  // of two ranks that would be the same
      Case{{"a", "a", "a"}, "doubling", 4, "shm one-shot"},
      Case{{"a", "b", "b"}, "chain", 4, "direct one-shot"},
  };
  for (const Case& each : cases) {
    LoopbackFabric fabric(static_cast<int>(each.hosts.size()), on_hosts(each.hosts));
    const auto mesh = fabric.take_mesh(0);
    NativeOptions native;
    native.algorithm = each.algorithm;
    EXPECT_EQ(chosen(NativeBackend(*mesh, native), Collective::kAllreduce, each.n_bytes), each.expected)
        << each.algorithm << " of " << each.n_bytes;
  }
}

// Parts of hosts that are not alike would be rounded otherwise than the ranks' inputs.
TEST(NativeBackendTest, HostsThatAreNotAlikeDoNotCombineWhatIsRounded) {
  LoopbackFabric fabric(3, on_hosts({"a", "a", "b"}));
  NativeOptions native;
  native.rounds_to_bfloat16 = true;
  native.algorithm = "by-hosts";
  std::vector<std::unique_ptr<Mesh>> meshes;
  std::vector<std::unique_ptr<NativeBackend>> backends;
  std::vector<std::vector<float>> values;
  std::vector<Plan> plans;
  for (int rank = 0; rank < 3; ++rank) {
    meshes.push_back(fabric.take_mesh(rank));
    backends.push_back(std::make_unique<NativeBackend>(*meshes.back(), native));
    values.emplace_back(100'000, std::array{256.0F, 1.0F, 1.0F}[static_cast<std::size_t>(rank)]);
  }
  for (auto& each : values) {
    plans.push_back(allreduce_plan(each));
    plans.back().op = ReduceOp::kSum;
    plans.back().prescale = 1.0;
  }
  std::vector<std::unique_ptr<RunningCollective>> running;
  for (std::size_t rank = 0; rank < 3; ++rank) running.push_back(backends[rank]->start(plans[rank]).collective);
  for (std::size_t n_done = 0; n_done < 3;) {
    for (auto& each : running) {
      if (each == nullptr || each->step() != Progress::kDone) continue;
      each.reset();
      ++n_done;
    }
  }
  for (const auto& each : values) EXPECT_EQ(each, std::vector<float>(100'000, 258.0F));
}

TEST(NativeBackendTest, ABroadcastIsPassedOnWhereThatIsFasterOrPrescribed) {
  struct Case {
    int n_hosts;
    std::string algorithm;
    std::size_t n_bytes;
    std::string_view expected;
  };
  const std::array cases{Case{2, "", 16 << 20, "direct star"},     Case{8, "", 4, "direct star"},
                         Case{8, "", 64 << 10, "direct tree"},     Case{8, "", 16 << 20, "direct chain"},
                         Case{8, "tree", 4, "direct tree"},        Case{8, "chain", 4, "direct chain"},
                         Case{8, "star", 16 << 20, "direct star"}, Case{8, "two-shot", 4, "direct star"}};
  for (const Case& each : cases) {
    std::vector<std::string> hosts;
    for (int host = 0; host < each.n_hosts; ++host) hosts.push_back(std::to_string(host));
    LoopbackFabric fabric(each.n_hosts, on_hosts(hosts));
    const auto mesh = fabric.take_mesh(0);
    NativeOptions native;
    native.algorithm = each.algorithm;
    EXPECT_EQ(chosen(NativeBackend(*mesh, native), Collective::kBroadcast, each.n_bytes), each.expected)
        << each.n_hosts << " hosts, " << each.algorithm << " of " << each.n_bytes;
  }
}

// Only float32 that is reduced, and that some rank has to be sent.
TEST(NativeBackendTest, RoundsWhatTravelsAsBFloat16) {
  NativeOptions native;
  native.rounds_to_bfloat16 = true;
  const auto combined = [&native](const LoopbackOptions& options, DataType dtype) {
    LoopbackFabric fabric(2, options);
    const auto mesh = fabric.take_mesh(0);
    std::vector<float> result(1);
    Plan plan = allreduce_plan(result);
    plan.dtype = dtype;
    plan.prescale = 1;
    plan.op = ReduceOp::kSum;
    const std::array inputs{1.0F, 1.0F / 1024};
    const auto* bytes = std::as_bytes(std::span(inputs)).data();
    std::array from{bytes, bytes + sizeof(float)};
    NativeBackend(*mesh, native).combine(plan, from);
    return result.front();
  };
  EXPECT_EQ(combined(on_hosts({"a", "b"}), DataType::kFloat32), 1.0F);
  EXPECT_EQ(combined(on_hosts({"a", "a"}), DataType::kFloat32), 1.0F + 1.0F / 1024);
  EXPECT_NE(combined(on_hosts({"a", "b"}), DataType::kInt32), 1.0F);  // the sum of the bits
  native.rounds_to_bfloat16 = false;
  EXPECT_EQ(combined(on_hosts({"a", "b"}), DataType::kFloat32), 1.0F + 1.0F / 1024);
}

// Where hosts combine first, all that is rounded must be theirs: not by the algorithm that knows no hosts.
TEST(NativeBackendTest, RoundsOfHostsAreNotThoseOfRanks) {
  NativeOptions native;
  native.rounds_to_bfloat16 = true;
  native.algorithm = "two-shot";
  LoopbackFabric fabric(4, on_hosts({"a", "a", "b", "b"}));
  std::vector<std::unique_ptr<Mesh>> meshes;
  std::vector<std::unique_ptr<NativeBackend>> backends;
  std::vector<std::vector<float>> values;
  std::vector<Plan> plans;
  for (int rank = 0; rank < 4; ++rank) {
    meshes.push_back(fabric.take_mesh(rank));
    backends.push_back(std::make_unique<NativeBackend>(*meshes.back(), native));
    values.emplace_back(100'000, std::array{256.0F, 1.0F, 0.5F, 0.5F}[static_cast<std::size_t>(rank)]);
  }
  for (auto& each : values) {
    plans.push_back(allreduce_plan(each));
    plans.back().op = ReduceOp::kSum;
    plans.back().prescale = 1.0;
  }
  std::vector<std::unique_ptr<RunningCollective>> running;
  for (std::size_t rank = 0; rank < 4; ++rank) running.push_back(backends[rank]->start(plans[rank]).collective);
  for (std::size_t n_done = 0; n_done < 4;) {
    for (auto& each : running) {
      if (each == nullptr || each->step() != Progress::kDone) continue;
      each.reset();
      ++n_done;
    }
  }
  const std::vector<float> expected(100'000, 256.0F);  // 257, the first host's, is rounded to 256; of all it is 258
  for (const auto& each : values) EXPECT_EQ(each, expected);
}

TEST(NativeBackendTest, CandidatesAreAllThatCouldBeTaken) {
  LoopbackFabric fabric(4, on_hosts({"a", "a", "b", "b"}));
  const auto mesh = fabric.take_mesh(0);
  const NativeBackend backend(*mesh, {});
  // One shot, two shot, by hosts, doubling; of large ones all but the first with segments of 256, 128 and 64 KiB.
  for (const auto& [n_bytes, n_ways] : {std::pair{std::size_t{4}, 4U}, {std::size_t{1} << 20, 10U}}) {
    const auto found = backend.candidates(Collective::kAllreduce, n_bytes);
    ASSERT_EQ(found.size(), n_ways);
    const auto fastest = std::min_element(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return *a.expected_us < *b.expected_us;
    });
    for (const Candidate& each : found) {
      EXPECT_EQ(each.is_chosen, &each == &*fastest);
      EXPECT_FALSE(each.taken_us);
    }
  }
  EXPECT_EQ(backend.candidates(Collective::kBroadcast, 4).size(), 3U);
  const auto only = backend.candidates(Collective::kAllgather, 4);
  ASSERT_EQ(only.size(), 1U);
  EXPECT_TRUE(only.front().is_chosen);
  EXPECT_FALSE(only.front().expected_us);
}

// Who comes last to a doubling finds there what the others have for it, and is done at once; they are not.
TEST(NativeBackendTest, ADoublingTakesItsRoundsHoweverLateTheLastRankComes) {
  constexpr std::size_t kRanks = 4;
  constexpr int kCalls = 200;                    // more than a trial of four ways needs
  constexpr std::uint64_t kLinkNs = 10'000'000;  // far more than the calls take here
  LoopbackOptions options = on_hosts({"a", "b", "c", "d"});
  HostCosts costs;
  costs.link_round_ns = kLinkNs;
  options.costs.assign(kRanks, costs);
  LoopbackFabric fabric(kRanks, options);
  std::vector<std::unique_ptr<Mesh>> meshes;
  std::vector<std::unique_ptr<NativeBackend>> backends;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    meshes.push_back(fabric.take_mesh(static_cast<int>(rank)));
    backends.push_back(std::make_unique<NativeBackend>(*meshes.back(), NativeOptions{}));
  }
  for (std::size_t call = 0; call < kCalls; ++call) {
    std::vector<std::vector<float>> values(kRanks, std::vector<float>(1, 1.0F));
    std::vector<Plan> plans;
    for (auto& each : values) plans.push_back(allreduce_plan(each));
    std::vector<std::unique_ptr<RunningCollective>> running(kRanks);
    std::size_t n_done = 0;
    const auto step_all = [&] {
      bool moved = false;
      for (auto& each : running) {
        const Progress progress = each ? each->step() : Progress::kStuck;
        moved |= progress != Progress::kStuck;
        if (progress != Progress::kDone) continue;
        each.reset();
        ++n_done;
      }
      return moved;
    };
    const std::size_t last = call % kRanks;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (rank != last) running[rank] = backends[rank]->start(plans[rank]).collective;
    }
    while (step_all()) {
    }
    running[last] = backends[last]->start(plans[last]).collective;
    while (n_done < kRanks) step_all();
    std::vector<std::uint64_t> news;
    for (const auto& each : backends) {
      for (const std::uint64_t ns : each->news()) news.push_back(ns);
    }
    for (const auto& each : backends) {
      if (news.empty()) continue;
      const auto tuned = each->conclude(news);
      ASSERT_EQ(tuned.size(), 1U);
      EXPECT_EQ(tuned.front().most_bytes, sizeof(float));
      EXPECT_TRUE(tuned.front().chosen.taken_us);
      EXPECT_NE(tuned.front().chosen.name, "direct doubling");
    }
  }
  int n_doublings = 0;
  for (const Candidate& each : backends.front()->candidates(Collective::kAllreduce, sizeof(float))) {
    if (each.name != "direct doubling") continue;
    ++n_doublings;
    ASSERT_TRUE(each.taken_us);
    EXPECT_GE(*each.taken_us, 2 * kLinkNs * 1e-3) << "two rounds";
    EXPECT_FALSE(each.is_chosen);
  }
  EXPECT_EQ(n_doublings, 1);
}

TEST(NativeBackendTest, SegmentsMayBePrescribed) {
  for (const bool with_arena : {true, false}) {
    LoopbackFabric fabric(2, fabric_options(with_arena));
    const auto mesh = fabric.take_mesh(0);
    NativeOptions native;
    native.segment_bytes = 1024;
    const auto found = NativeBackend(*mesh, native).candidates(Collective::kAllreduce, kSlotBytes);
    ASSERT_EQ(found.size(), with_arena ? 3U : 2U);
    EXPECT_EQ(found[0].segment_bytes, 0U);
    EXPECT_EQ(found[1].segment_bytes, 1024U);
    EXPECT_EQ(found.back().is_in_place, with_arena);
    native.segment_bytes = 16 * kSlotBytes;
    const auto longer = NativeBackend(*mesh, native).candidates(Collective::kAllreduce, kSlotBytes);
    EXPECT_EQ(longer[1].segment_bytes, with_arena ? kSlotBytes : 16 * kSlotBytes) << "a slot holds no more";
  }
}

// Slots that cannot give each rank a cache line: what needs its own part for each rank goes by the channels.
TEST(NativeBackendTest, SlotsThatAreTooSmallToShareOutAreNotUsed) {
  LoopbackFabric fabric(65, fabric_options(true));
  const auto mesh = fabric.take_mesh(0);
  const NativeBackend backend(*mesh, {});
  EXPECT_EQ(chosen(backend, Collective::kAlltoall, 1), "direct exchange");
  EXPECT_EQ(chosen(backend, Collective::kScatter, 1), "direct exchange");
  EXPECT_EQ(chosen(backend, Collective::kReducescatter, 1), "direct reducescatter");
  EXPECT_EQ(chosen(backend, Collective::kAllgather, 1), "shm exchange");
  EXPECT_EQ(chosen(backend, Collective::kAllreduce, 1 << 20), "shm two-shot");
}

TEST(NativeBackendTest, AWorldOfOneIsDoneAtOnce) {
  LoopbackFabric fabric(1);
  const auto mesh = fabric.take_mesh(0);
  NativeBackend backend(*mesh, {});
  std::vector<float> values{1, 2, 3};
  const Plan plan = allreduce_plan(values);
  EXPECT_EQ(backend.start(plan).collective, nullptr);
  EXPECT_EQ(values, (std::vector<float>{3, 6, 9}));
}

TEST(NativeBackendTest, WhatIsEmptyOnAllRanksIsDoneAtOnce) {
  for (const bool with_arena : {true, false}) {
    LoopbackFabric fabric(2, fabric_options(with_arena));
    const auto mesh = fabric.take_mesh(0);
    NativeBackend backend(*mesh, {});
    for (const CollectiveInfo& row : kCollectives) {
      if (!row.has_tensors) continue;
      Plan plan;
      plan.collective = row.collective;
      plan.root = 0;
      plan.output_by_rank.resize(2);
      EXPECT_EQ(backend.start(plan).collective, nullptr) << row.name;
    }
  }
}

// An allgather to which only others contribute something must be carried out all the same.
TEST(NativeBackendTest, WhatIsEmptyOnlyHereIsNotDone) {
  for (const bool with_arena : {true, false}) {
    LoopbackFabric fabric(2, fabric_options(with_arena));
    const std::array meshes{fabric.take_mesh(0), fabric.take_mesh(1)};
    std::array<std::byte, 8> sent;
    sent.fill(std::byte{7});
    std::array<std::array<std::byte, 8>, 2> received{};
    std::vector<Plan> plans(2);
    std::vector<NativeBackend> backends;
    std::vector<std::unique_ptr<RunningCollective>> running;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      plans[rank].collective = Collective::kAllgather;
      plans[rank].n_bytes = sent.size();
      plans[rank].output_by_rank.resize(2);
      plans[rank].output_by_rank[1].add(received[rank].data(), received[rank].size());
      if (rank == 1) plans[rank].input.add(sent.data(), sent.size());
      backends.emplace_back(*meshes[rank], NativeOptions{});
    }
    for (std::size_t rank = 0; rank < 2; ++rank) running.push_back(backends[rank].start(plans[rank]).collective);
    for (int n_running = 2; n_running > 0;) {
      n_running = 0;
      for (auto& one : running) {
        if (one && one->step() == Progress::kDone) one.reset();
        if (one) ++n_running;
      }
    }
    EXPECT_EQ(received[0], sent);
    EXPECT_EQ(received[1], sent);
  }
}

// In the middle of a transfer: what the channel has not taken is not read any more, and other lanes use the channel.
TEST(NativeBackendTest, AnAbortEndsItsTransfers) {
  LoopbackFabric fabric(2, fabric_options(false));
  const std::array meshes{fabric.take_mesh(0), fabric.take_mesh(1)};
  std::array muxes{LaneMux(*meshes[0]), LaneMux(*meshes[1])};
  LaneMesh given_up(*meshes[0], muxes[0], 1, {0, 1}, nullptr);
  NativeBackend backend(given_up, {});
  std::vector<float> values(1 << 20, 1.0F);
  Plan plan = allreduce_plan(values);
  plan.collective = Collective::kBroadcast;
  plan.root = 0;
  auto running = backend.start(plan).collective;
  while (running->step() != Progress::kStuck) {
  }
  backend.abort();
  running.reset();
  values = {};

  std::array others{LaneMesh(*meshes[0], muxes[0], 2, {0, 1}, nullptr),
                    LaneMesh(*meshes[1], muxes[1], 2, {0, 1}, nullptr)};
  std::array backends{NativeBackend(others[0], {}), NativeBackend(others[1], {})};
  std::array numbers{std::vector<float>{1, 2}, std::vector<float>{3, 4}};
  const std::array plans{allreduce_plan(numbers[0]), allreduce_plan(numbers[1])};
  std::array collectives{backends[0].start(plans[0]).collective, backends[1].start(plans[1]).collective};
  for (int i = 0; i < 1000 && (collectives[0] || collectives[1]); ++i) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      muxes[rank].flush();
      if (collectives[rank] && collectives[rank]->step() == Progress::kDone) collectives[rank].reset();
    }
  }
  EXPECT_EQ(numbers[0], (std::vector<float>{12, 18})) << "three times the sum";
  EXPECT_EQ(numbers[1], numbers[0]);
}

}  // namespace
}  // namespace ciranda
