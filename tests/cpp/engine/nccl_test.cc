// Collectives by NCCL, by a fake one on the fake driver, each rank on a GPU of its own: sizes and layouts, types and
// ops, what goes another way instead, and communicators that cannot be made, fail, or lose a rank. That results have
// the bits of the CPU's, where NCCL only moves, is shown by the conformance tests.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/driver_api.hpp"
#include "call/nccl_collectives.hpp"
#include "engine/fake_driver.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/own_program.hpp"
#include "engine/requests.hpp"
#include "engine/sets.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"
#include "text_matchers.hpp"

#ifndef CIRANDA_SANITIZED

namespace ciranda {
namespace {

using testing::AtHome;
using testing::await_all;
using testing::cuda_home;
using testing::end_program;
using testing::Guarded;
using testing::Homes;
using testing::Layout;
using testing::options_for;
using testing::set_fake;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kChunkBytes = 64 * kSlotBytes;  // that NCCL is given at a time

WorldOptions by_nccl(int size, Layout layout = Layout::kArena) {
  WorldOptions options = options_for(layout, size);
  options.homes = Homes::kCudaNccl;
  options.fabric.slot_bytes = kSlotBytes;
  options.config.slot_bytes = kSlotBytes;
  options.config.gpu_way = "nccl";
  options.config.nccl_between_hosts = true;
  return options;
}

// With the driver loaded, and a GPU for each rank.
void expect_in_own_program(const std::function<void()>& scenario) {
  testing::expect_in_own_program([&] {
    const Watchdog watchdog("NCCL");
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_NCCL_POLLS", "3", 1);
    cuda_home(0);
    scenario();
  });
}

template <typename Value>
constexpr DataType kTypeOf = DataType::kInt64;
template <>
constexpr DataType kTypeOf<float> = DataType::kFloat32;
template <>
constexpr DataType kTypeOf<double> = DataType::kFloat64;
template <>
constexpr DataType kTypeOf<std::uint8_t> = DataType::kUInt8;
template <>
constexpr DataType kTypeOf<std::int32_t> = DataType::kInt32;

// One call on tensors of these lengths, in place, whose elements are all `value`; every third is misaligned. All of its
// results are `expected`.
struct Factors {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
};
template <typename Value>
void expect_of(Engine& engine, const std::vector<std::size_t>& lengths, Value value, Value expected,
               const std::string& name, const Factors& factors = {}) {
  std::vector<std::unique_ptr<Guarded>> tensors;
  Request call;
  call.name = name;
  call.signature.collective = Collective::kAllreduce;
  call.signature.op = factors.op;
  call.signature.prescale = factors.prescale;
  call.signature.postscale = factors.postscale;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<Value> values(lengths[i], value);
    tensors.push_back(std::make_unique<Guarded>(std::as_bytes(std::span(values)),
                                                i % 3 == 1 ? Guarded::kMisaligned : Guarded::kAligned));
    const Request one = testing::request(Collective::kAllreduce, "", kTypeOf<Value>,
                                         {static_cast<std::int64_t>(lengths[i])}, tensors.back()->data());
    call.signature.tensors.push_back(one.signature.tensors.front());
    call.memory.push_back(one.memory.front());
  }
  const Status status = wait_at_home(engine, submit_request(engine, std::move(call)));
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<Value> values(lengths[i], expected);
    EXPECT_TRUE(tensors[i]->holds(std::as_bytes(std::span(values))))
        << name << ", tensor " << i << " begins with " << +*reinterpret_cast<const Value*>(tensors[i]->bytes().data());
    EXPECT_TRUE(tensors[i]->is_intact()) << name << ", beside tensor " << i;
  }
}

// A function of the fake NCCL's; null: the process has not loaded it.
template <typename Function>
Function* of_fake_nccl(const char* name) {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

// How often all ranks have called the function, or any collective of NCCL's.
std::uint64_t n_nccl_calls(const char* name) {
  auto* const n_calls = of_fake_nccl<std::uint64_t(const char*)>("fake_nccl_n_calls");
  return n_calls == nullptr ? 0 : n_calls(name);
}
std::uint64_t n_by_nccl() { return n_nccl_calls(""); }

// Kernels of the fake NCCL in this process that have not ended.
std::uint64_t n_kernels_under_way() { return of_fake_nccl<std::uint64_t()>("fake_nccl_n_under_way")(); }

Engine::OperationPtr begin_sum(Engine& engine, Guarded& tensor, const std::string& name = "sum") {
  return submit_request(engine,
                        testing::request(Collective::kAllreduce, name, DataType::kFloat32, {10}, tensor.data()));
}

// While it lives, this rank's stream stands still, so its GPU does not come to a call. The thread has made a tensor.
class StandingStill {
 public:
  StandingStill() {
    const auto begin = testing::of_fake<cuda::CUresult(void**, void*, const char*, const void*, std::size_t)>(
        "fake_cuda_begin_kernel");
    EXPECT_EQ(begin(&kernel_, testing::home().place.queue, "endless", nullptr, 0), cuda::CUresult::kSuccess);
  }
  ~StandingStill() { testing::of_fake<void(void*)>("fake_cuda_end_kernel")(kernel_); }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;

 private:
  void* kernel_ = nullptr;
};

// In part of a chunk and in several, in one piece and in many; on late streams; with memory that ranks share, and
// without, as between hosts.
TEST(NcclDeathTest, SumsOfEverySize) {
  for (const auto& [size, layout] : {std::pair(2, Layout::kArena), std::pair(3, Layout::kTwoHosts)}) {
    expect_in_own_program([size = size, layout = layout] {
      World world(size, by_nccl(size, layout));
      constexpr std::size_t kChunk = kChunkBytes / sizeof(std::int64_t);
      const std::vector<std::vector<std::size_t>> groups{
          {1}, {kChunk - 1}, {kChunk}, {2 * kChunk + 5}, {1, 1000}, {7, 0, kChunk, 1, kChunk, 13}};
      world.run([&](Engine& engine) {
        if (engine.rank() == 0) set_fake("FAKE_CUDA_DELAY_SEED", "7");
        await_all(engine);
        for (int step = 1; step <= 2; ++step) {
          for (std::size_t i = 0; i < groups.size(); ++i) {
            expect_of<std::int64_t>(engine, groups[i], 5, 5 * size, std::to_string(i));
          }
        }
        await_all(engine);
        EXPECT_GE(n_by_nccl(), 2 * groups.size() * static_cast<std::size_t>(size));
      });
    });
  }
}

// What is divided and scaled, in chunks, with factors that are exact; and what NCCL has of integers.
TEST(NcclDeathTest, AveragesFactorsAndOps) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    world.run([&](Engine& engine) {
      const std::vector<std::size_t> lengths{3, kChunkBytes / 4 + 9, 1000};
      expect_of<float>(engine, lengths, 6, 6, "average", {.op = ReduceOp::kAverage});
      expect_of<float>(engine, {5000}, 6, 6, "average of one", {.op = ReduceOp::kAverage});
      expect_of<float>(engine, lengths, 6, 24, "scaled", {.prescale = 0.5, .postscale = 4});
      expect_of<double>(engine, {5000}, 6, 24, "scaled in place", {.prescale = 0.5, .postscale = 4});
      expect_of<float>(engine, lengths, 6, 18, "both", {ReduceOp::kAverage, 0.5, 6});
      expect_of<double>(engine, lengths, 6, 36, "product", {.op = ReduceOp::kProduct});
      expect_of<std::uint8_t>(engine, {1000}, 200, 144, "wraps");
      expect_of<std::int32_t>(engine, lengths, -4, 16, "integers", {.op = ReduceOp::kProduct});
      expect_of<std::int64_t>(engine, lengths, -4, -4, "least", {.op = ReduceOp::kMin});
      await_all(engine);
      EXPECT_GE(n_by_nccl(), 2U * 9U);
    });
  });
}

// It moves the inputs, and kernels of ours reduce them.
TEST(NcclDeathTest, WhatNcclDoesNotReduceItMoves) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    world.run([&](Engine& engine) {
      expect_of<std::int64_t>(engine, {10}, INT64_MAX, INT64_MAX, "average", {.op = ReduceOp::kAverage});
      expect_of<std::int32_t>(engine, {10}, 3, 12, "scaled", {.prescale = 2});
      expect_of<float>(engine, {kChunkBytes}, 3, 3, "greatest", {.op = ReduceOp::kMax});
      expect_of<std::int32_t>(engine, {10}, 6, 6, "bits", {.op = ReduceOp::kBitwiseAnd});
      await_all(engine);
      EXPECT_GE(n_by_nccl(), 2U * 4U);
      EXPECT_EQ(n_nccl_calls("ncclAllReduce"), 0U);
      EXPECT_GE(n_nccl_calls("ncclSend"), 2U * 4U);
    });
  });
}

TEST(NcclDeathTest, ByOneSettingNcclReducesNothing) {
  expect_in_own_program([] {
    WorldOptions options = by_nccl(3);
    options.config.gpu_reduce = "ciranda";
    World world(3, options);
    world.run([&](Engine& engine) {
      for (const std::size_t length : {std::size_t{3}, kChunkBytes}) {
        expect_of<float>(engine, {length, 7}, 6, 6, "average", {.op = ReduceOp::kAverage});
      }
      await_all(engine);
      EXPECT_EQ(n_nccl_calls("ncclAllReduce"), 0U);
      EXPECT_GT(n_nccl_calls("ncclAllGather"), 0U);
    });
  });
}

// The rows of a sum that each rank gets, and a sum that one gets: even parts in one piece, by NCCL from the tensor
// itself, others, and several chunks; all inputs are rank + 1.
void expect_rows(Engine& engine, Collective collective, const std::vector<std::size_t>& lengths, const Factors& factors,
                 double expected, const std::string& name) {
  const bool is_reduce = collective == Collective::kReduce;
  const bool has_result = !is_reduce || engine.rank() == 1;
  std::vector<std::unique_ptr<Guarded>> inputs;
  std::vector<std::unique_ptr<Guarded>> outputs;
  std::vector<std::vector<double>> wanted;
  Request call;
  call.name = name;
  call.signature.collective = collective;
  call.signature.op = factors.op;
  call.signature.prescale = factors.prescale;
  call.signature.postscale = factors.postscale;
  if (is_reduce) call.signature.root = 1;
  for (const std::size_t length : lengths) {
    const std::vector<double> values(length, engine.rank() + 1);
    const auto rows = even_splits(static_cast<std::int64_t>(length), engine.size());
    const auto n_own = is_reduce ? length : static_cast<std::size_t>(rows[static_cast<std::size_t>(engine.rank())]);
    inputs.push_back(std::make_unique<Guarded>(std::as_bytes(std::span(values)), Guarded::kAligned));
    wanted.emplace_back(n_own, expected);
    outputs.push_back(std::make_unique<Guarded>(n_own * sizeof(double), Guarded::kAligned));
    const Request one = testing::request(collective, "", DataType::kFloat64, {static_cast<std::int64_t>(length)},
                                         inputs.back()->data());
    call.signature.tensors.push_back(one.signature.tensors.front());
    call.memory.push_back(
        {inputs.back()->data(), has_result ? outputs.back()->data() : nullptr, testing::home().place});
  }
  const Status status = wait_at_home(engine, submit_request(engine, std::move(call)));
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (has_result) {
      EXPECT_TRUE(outputs[i]->holds(std::as_bytes(std::span(wanted[i])))) << name << ", tensor " << i;
    }
    EXPECT_TRUE(outputs[i]->is_intact() && inputs[i]->is_intact()) << name << ", tensor " << i;
    const std::vector<double> given(lengths[i], engine.rank() + 1);
    EXPECT_TRUE(inputs[i]->holds(std::as_bytes(std::span(given)))) << name << ": input " << i << " was changed";
  }
}

TEST(NcclDeathTest, ReducesAndReducescattersByNccl) {
  for (const int size : {2, 3}) {
    expect_in_own_program([size] {
      World world(size, by_nccl(size));
      world.run([&](Engine& engine) {
        const auto n = static_cast<std::size_t>(size);
        constexpr std::size_t kChunk = kChunkBytes / sizeof(double);
        const std::vector<std::vector<std::size_t>> groups{{n},         {8 * n},          {8 * n + 1},
                                                           {kChunk, 5}, {3 * kChunk + 1}, {1}};
        const double sum = size * (size + 1) / 2.0;
        for (const Collective collective : {Collective::kReduce, Collective::kReducescatter}) {
          for (std::size_t i = 0; i < groups.size(); ++i) {
            const std::string name = std::string(to_string(collective)) + std::to_string(i);
            expect_rows(engine, collective, groups[i], {}, sum, name);
            expect_rows(engine, collective, groups[i], {.op = ReduceOp::kAverage}, sum / size, name + " average");
            expect_rows(engine, collective, groups[i], {.prescale = 0.5, .postscale = 4}, 2 * sum, name + " scaled");
          }
        }
        await_all(engine);
        EXPECT_GE(n_nccl_calls("ncclReduce"), 3 * n * groups.size());
        EXPECT_GE(n_nccl_calls("ncclReduceScatter"), 3 * n * groups.size());
        EXPECT_EQ(n_nccl_calls("ncclSend"), 0U);
      });
    });
  }
}

// If one rank has no NCCL that can be used, all take another way, and one says why. Ranks that are threads can map each
// other's memory on one GPU only.
void expect_another_way(const std::string& fault, bool shares_gpu) {
  expect_in_own_program([fault, shares_gpu] {
    WorldOptions options = by_nccl(2);
    if (fault == "FAKE_NCCL_INIT=never") options.config.stall_shutdown_seconds = 2;
    ::testing::internal::CaptureStderr();
    World world(2, options);
    if (const std::size_t end = fault.find('='); end != std::string::npos) {
      set_fake(fault.substr(0, end).c_str(), fault.substr(end + 1));
    }
    world.run([&](Engine& engine) {
      const AtHome at(shares_gpu ? cuda_home(engine.rank()) : testing::home());
      for (int step = 0; step < 3; ++step) expect_of<float>(engine, {10, 3000}, 2, 4, "sum");
      await_all(engine);
      EXPECT_EQ(n_by_nccl(), 0U);
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::string warning = "NCCL cannot be used: ";
    const std::size_t told = said.find(warning);
    EXPECT_NE(told, std::string::npos) << said;
    EXPECT_EQ(said.find("CIRANDA_GPU_WAY", told), std::string::npos) << said;  // nor that a call is staged
    EXPECT_EQ(said.find("tensors on GPUs go by peer, although") != std::string::npos, shares_gpu) << said;
  });
}

TEST(NcclDeathTest, WithoutACommunicatorAllGoAnotherWay) {
  for (const std::string fault : {"FAKE_NCCL_VERSION=22601", "FAKE_CUDA_FAIL=cuMemAlloc:1:2", "a GPU for two"}) {
    SCOPED_TRACE(fault);
    expect_another_way(fault, true);
  }
  for (const std::string fault : {"FAKE_NCCL_VERSION=22601", "FAKE_NCCL_INIT=2", "FAKE_NCCL_INIT=never"}) {
    SCOPED_TRACE(fault);
    expect_another_way(fault, false);
  }
}

// NCCL between hosts is neither authenticated nor encrypted, so it must be allowed.
TEST(NcclDeathTest, BetweenHostsItMustBeAllowed) {
  expect_in_own_program([] {
    WorldOptions options = by_nccl(2, Layout::kTwoHosts);
    options.config.nccl_between_hosts = false;
    ::testing::internal::CaptureStderr();
    World world(2, options);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10, 3000}, 2, 4, "sum");
      await_all(engine);
      EXPECT_EQ(n_by_nccl(), 0U);
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("NCCL authenticates and encrypts nothing"), std::string::npos) << said;
    EXPECT_EQ(said.find("CIRANDA_GPU_WAY"), std::string::npos) << said;
  });
}

// How many orders a test draws; ORDERS=10000 in the environment takes minutes.
unsigned n_orders() {
  const char* const asked = std::getenv("ORDERS");
  return asked == nullptr ? 25 : static_cast<unsigned>(std::stoul(asked));
}

// Calls of lanes and of overlapping sets, which each rank makes in an order of its own, many at a time: they go by
// NCCL, which gets them in one order on all GPUs.
TEST(NcclDeathTest, LanesAndSetsTakeTurns) {
  expect_in_own_program([] {
    World world(4, by_nccl(4));
    world.run([&](Engine& engine) {
      struct Group {
        std::uint32_t set;
        std::uint32_t lane;
        std::vector<std::int64_t> ranks;
      };
      std::vector<Group> groups{{0, 0, {0, 1, 2, 3}}, {0, 1, {0, 1, 2, 3}}};
      for (const std::vector<std::int64_t>& ranks :
           {std::vector<std::int64_t>{0, 1}, {1, 2}, {2, 3}, {0, 3}, {1, 2, 3}}) {
        groups.push_back({testing::add_set(engine, ranks), 0, ranks});
      }
      groups.push_back({groups.back().set, 2, groups.back().ranks});
      std::erase_if(groups, [&](const Group& group) {
        return std::ranges::find(group.ranks, std::int64_t{engine.rank()}) == group.ranks.end();
      });
      std::mt19937 random(static_cast<unsigned>(engine.rank()) + 1);
      for (unsigned step = 0; step < n_orders(); ++step) {
        std::ranges::shuffle(groups, random);
        std::vector<std::unique_ptr<Guarded>> tensors;
        std::vector<Engine::OperationPtr> sums;
        for (const Group& group : groups) {
          const std::vector<float> values(500, 2);
          tensors.push_back(std::make_unique<Guarded>(std::as_bytes(std::span(values)), Guarded::kAligned));
          Request sum =
              testing::request(Collective::kAllreduce, "sum", DataType::kFloat32, {500}, tensors.back()->data());
          sum.process_set = group.set;
          sum.lane = group.lane;
          sums.push_back(submit_request(engine, std::move(sum)));
        }
        for (std::size_t i = 0; i < groups.size(); ++i) {
          const Status status = wait_at_home(engine, sums[i]);
          ASSERT_TRUE(status.ok()) << status.message();
          const std::vector<float> expected(500, 2 * static_cast<float>(groups[i].ranks.size()));
          EXPECT_TRUE(tensors[i]->holds(std::as_bytes(std::span(expected)))) << "set " << groups[i].set;
        }
      }
      await_all(engine);
      EXPECT_EQ(n_by_nccl(), n_orders() * (4 + 4 + 2 + 2 + 2 + 2 + 3 + 3));
      // Lanes of the same ranks share one.
      EXPECT_EQ(of_fake_nccl<std::uint64_t()>("fake_nccl_n_communicators")(), 4U + 2 + 2 + 2 + 2 + 3);
      await_all(engine);
    });
  });
}

// A group of ranks, and one of its lanes.
struct RanksOfLane {
  std::uint32_t set;
  std::uint32_t lane;
  std::vector<std::int64_t> ranks;
};

Request sum_of(const RanksOfLane& group, const std::string& name, Guarded& tensor, std::size_t length) {
  Request sum = testing::request(Collective::kAllreduce, name, DataType::kFloat32, {static_cast<std::int64_t>(length)},
                                 tensor.data());
  sum.process_set = group.set;
  sum.lane = group.lane;
  return sum;
}

// One GPU comes to nothing for a while. Calls of all sets and lanes, which each rank makes in an order of its own, are
// done meanwhile on all ranks, with their results under way; afterwards they are right, those too that follow from
// others.
TEST(NcclDeathTest, TheHostWaitsForNoGpu) {
  for (const std::string reduces : {"nccl", "ciranda"}) {
    expect_in_own_program([reduces] {
      set_fake("FAKE_CUDA_QUEUE", "4096");
      WorldOptions options = by_nccl(3);
      options.config.gpu_reduce = reduces;
      World world(3, options);
      std::barrier<> all(3);
      world.run([&](Engine& engine) {
        constexpr std::size_t kLength = kChunkBytes / 4 + 500;  // more than a chunk
        constexpr int kCalls = 5;
        std::vector<RanksOfLane> groups{{0, 0, {0, 1, 2}}, {0, 1, {0, 1, 2}}};
        for (const std::vector<std::int64_t>& ranks : {std::vector<std::int64_t>{0, 1}, {1, 2}, {0, 2}}) {
          groups.push_back({testing::add_set(engine, ranks), 0, ranks});
        }
        std::erase_if(groups, [&](const RanksOfLane& group) {
          return std::ranges::find(group.ranks, std::int64_t{engine.rank()}) == group.ranks.end();
        });
        const std::vector<float> values(kLength, 2);
        std::vector<std::unique_ptr<Guarded>> tensors;
        for (const RanksOfLane& group : groups) {  // also settles the lane
          tensors.push_back(std::make_unique<Guarded>(std::as_bytes(std::span(values)), Guarded::kMisaligned));
          EXPECT_TRUE(wait_at_home(engine, submit_request(engine, sum_of(group, "0", *tensors.back(), kLength))).ok());
        }
        EXPECT_TRUE(engine.await_results().ok());
        all.arrive_and_wait();
        std::optional<StandingStill> still;
        if (engine.rank() == 1) still.emplace();
        all.arrive_and_wait();
        std::mt19937 random(static_cast<unsigned>(engine.rank()) + 1);
        std::vector<Engine::OperationPtr> sums, held_back;
        for (int call = 1; call < kCalls; ++call) {
          std::vector<std::size_t> order(groups.size());
          for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
          std::ranges::shuffle(order, random);
          const std::size_t n_before = sums.size();
          for (const std::size_t i : order) {
            sums.push_back(submit_request(engine, sum_of(groups[i], std::to_string(call), *tensors[i], kLength)));
            if (std::ranges::find(groups[i].ranks, 1) != groups[i].ranks.end()) held_back.push_back(sums.back());
          }
          for (std::size_t i = n_before; i < sums.size(); ++i) {
            const Status status = wait_at_home(engine, sums[i]);
            EXPECT_TRUE(status.ok()) << status.message();
          }
        }
        all.arrive_and_wait();
        for (const auto& sum : held_back) EXPECT_FALSE(sum->has_ended());
        all.arrive_and_wait();
        still.reset();
        for (std::size_t i = 0; i < groups.size(); ++i) {
          float expected = 2;
          for (int call = 0; call < kCalls; ++call) expected *= static_cast<float>(groups[i].ranks.size());
          const std::vector<float> all_expected(kLength, expected);
          EXPECT_TRUE(tensors[i]->holds(std::as_bytes(std::span(all_expected)))) << "set " << groups[i].set;
        }
        EXPECT_TRUE(engine.await_results().ok());
        for (const auto& sum : sums) EXPECT_TRUE(sum->has_ended());
        await_all(engine);
      });
    });
  }
}

// A rank is lost when calls have been waited for whose results are under way: the next call fails and names the first
// of them, and none of them can be waited for again. What had ended before is no part of it.
TEST(NcclDeathTest, TheNextCallNamesTheFirstVoidResult) {
  expect_in_own_program([] {
    set_fake("FAKE_CUDA_QUEUE", "4096");
    World world(3, by_nccl(3));
    std::barrier<> all(3);
    world.run([&](Engine& engine) {
      Guarded tensor(40, Guarded::kAligned);
      const auto before = begin_sum(engine, tensor, "before");
      EXPECT_TRUE(wait_at_home(engine, before).ok());
      EXPECT_TRUE(engine.await_results().ok());
      all.arrive_and_wait();
      std::optional<StandingStill> still;
      if (engine.rank() == 2) still.emplace();
      all.arrive_and_wait();
      std::vector<Engine::OperationPtr> voids;
      for (const char* const name : {"first", "second"}) {
        voids.push_back(begin_sum(engine, tensor, name));
        EXPECT_TRUE(wait_at_home(engine, voids.back()).ok());
      }
      all.arrive_and_wait();
      if (engine.rank() == 2) world.fabric().kill(2);
      EXPECT_FALSE(engine.await_results().ok());
      all.arrive_and_wait();  // the kernels could end well before their abort
      still.reset();
      const Status next = engine.wait(begin_sum(engine, tensor, "next"));
      EXPECT_NE(next.message().find("The result of allreduce 'first' is void"), std::string::npos) << next.message();
      EXPECT_EQ(next.message().find("'before'"), std::string::npos) << next.message();
      EXPECT_TRUE(before->order(testing::home().place).ok());
      for (std::size_t i = 0; i < voids.size(); ++i) {
        const Status again = voids[i]->order(testing::home().place);
        EXPECT_NE(again.message().find(i == 0 ? "'first' is void" : "'second' is void"), std::string::npos)
            << again.message();
      }
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      all.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
}

// A rank that leaves waits for the results of its calls, as the other ranks' depend on them.
TEST(NcclDeathTest, WhoLeavesWaitsForResults) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    std::barrier<> all(2);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      const std::vector<float> values(10, 3), expected(10, 6);
      Guarded tensor(std::as_bytes(std::span(values)), Guarded::kAligned);
      EXPECT_TRUE(engine.await_results().ok());
      all.arrive_and_wait();
      std::optional<StandingStill> still;
      if (engine.rank() == 1) still.emplace();
      all.arrive_and_wait();
      EXPECT_TRUE(wait_at_home(engine, begin_sum(engine, tensor)).ok());
      all.arrive_and_wait();
      if (still) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other leaves
      still.reset();
      engine.shutdown();
      EXPECT_TRUE(tensor.holds(std::as_bytes(std::span(expected))));
    });
  });
}

// Ranks that have joined give zeros to sums, and an average is that of the others; in chunks, too. What is no sum is
// staged.
TEST(NcclDeathTest, RanksThatHaveJoinedHelp) {
  expect_in_own_program([] {
    World world(3, by_nccl(3));
    world.run([&](Engine& engine) {
      const std::vector<std::size_t> lengths{3, kChunkBytes / 4 + 9, 1000};
      for (int epoch = 0; epoch < 2; ++epoch) {
        expect_of<float>(engine, {10}, 2, 6, "of all");
        await_all(engine);
        const std::uint64_t n_before = n_by_nccl();
        await_all(engine);
        if (engine.rank() == 1) {
          EXPECT_TRUE(engine.wait(submit_request(engine, testing::bare(Collective::kJoin))).ok());
        } else {
          for (int step = 0; step < 2; ++step) {
            expect_of<float>(engine, {10}, 2, 4, "of all");
            expect_of<float>(engine, lengths, 6, 6, "average", {.op = ReduceOp::kAverage});
            expect_of<double>(engine, {5000}, 6, 24, "scaled", {.prescale = 0.5, .postscale = 4});
            expect_of<std::int64_t>(engine, lengths, 5, 10, "integers");
          }
          EXPECT_GE(n_by_nccl(), n_before + 2 * 4 * 2);
          expect_of<float>(engine, {10}, 2, 4, "product", {.op = ReduceOp::kProduct});
          EXPECT_TRUE(engine.wait(submit_request(engine, testing::bare(Collective::kJoin))).ok());
        }
      }
      await_all(engine);
      EXPECT_EQ(n_nccl_calls("ncclSend"), 0U);
    });
  });
}

// When the rank that gives turns has left, a set without it goes on, by another way.
TEST(NcclDeathTest, WithoutItsCoordinatorASetGoesAnotherWay) {
  expect_in_own_program([] {
    World world(3, by_nccl(3));
    std::latch has_left(3);
    world.run([&](Engine& engine) {
      const std::uint32_t set = testing::add_set(engine, {1, 2});
      await_all(engine);
      if (engine.rank() == 0) {
        engine.shutdown();
        has_left.arrive_and_wait();
        return;
      }
      has_left.arrive_and_wait();
      const std::vector<float> values(1000, 2), expected(1000, 4);
      for (int step = 0; step < 2; ++step) {
        Guarded tensor(std::as_bytes(std::span(values)), Guarded::kAligned);
        Request sum = testing::request(Collective::kAllreduce, "sum", DataType::kFloat32, {1000}, tensor.data());
        sum.process_set = set;
        const Status status = wait_at_home(engine, submit_request(engine, std::move(sum)));
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(tensor.holds(std::as_bytes(std::span(expected))));
      }
      EXPECT_EQ(n_by_nccl(), 0U);
    });
  });
}

// The rank without it takes part, fails, and goes on.
TEST(NcclDeathTest, AResultWithoutMemoryFailsOnItsRank) {
  for (const Collective collective : {Collective::kAllgather, Collective::kReducescatter, Collective::kAlltoall}) {
    expect_in_own_program([collective] {
      World world(2, by_nccl(2));
      std::atomic<int> n_failed = 0;
      world.run([&](Engine& engine) {
        expect_of<float>(engine, {10}, 2, 4, "sum");
        Guarded input(std::size_t{8000}, Guarded::kAligned);
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync:1:2");
        await_all(engine);
        for (int step = 0; step < 2; ++step) {
          Request rows = testing::request(collective, "rows", DataType::kFloat32, {2000}, input.data());
          rows.memory.front().output = nullptr;
          if (collective == Collective::kAlltoall) rows.splits = {{1000, 1000}};
          const Status status = wait_at_home(engine, submit_request(engine, std::move(rows)));
          if (!status.ok()) {
            ++n_failed;
            EXPECT_NE(status.message().find("no memory on GPU "), std::string::npos) << status.message();
          }
          await_all(engine);
          EXPECT_EQ(n_failed, 1);
        }
      });
    });
  }
}

// A kernel of NCCL's that never ends: the ranks name their GPUs, the job ends at the limit of stalls, and no kernel is
// left behind.
TEST(NcclDeathTest, AKernelThatNeverEndsIsNamedAndAborted) {
  expect_in_own_program([] {
    WorldOptions options = by_nccl(2);
    testing::end_stalls_soon(options.config);
    World world(2, options);
    set_fake("FAKE_NCCL_ENDLESS", "1");
    std::latch is_over(2);
    world.run([&](Engine& engine) {
      Guarded tensor(40, Guarded::kAligned);
      const auto sum = begin_sum(engine, tensor);
      EXPECT_TRUE(engine.wait(sum).ok());
      const Status status = engine.await_results();
      for (const char* const text : {"GPU", "for NCCL", "The result of allreduce 'sum' is void"}) {
        EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
      }
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      is_over.arrive_and_wait();
      end_program();
    });
  });
}

// Whose GPU does not come to a call is named on all ranks, and not one whose GPU waits for it in NCCL.
TEST(NcclDeathTest, WhoseGpuDoesNotComeIsNamed) {
  expect_in_own_program([] {
    WorldOptions options = by_nccl(3);
    testing::end_stalls_soon(options.config);
    World world(3, options);
    std::latch is_over(3);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 6, "sum");
      Guarded tensor(40, Guarded::kAligned);
      std::optional<StandingStill> still;
      if (engine.rank() == 1) still.emplace();
      EXPECT_TRUE(engine.wait(begin_sum(engine, tensor)).ok());
      const Status status = engine.await_results();
      EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
      EXPECT_TRUE(contains(status.message(), "Waiting for the tensors of rank 1 (host "));
      is_over.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
}

// An error that NCCL tells of ends the world, on all ranks.
TEST(NcclDeathTest, AnErrorOfNcclIsEveryones) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    set_fake("FAKE_NCCL_ASYNC", "2:6");
    std::latch is_over(2);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      Guarded tensor(40, Guarded::kAligned);
      Status status;
      for (int step = 0; step < 20 && status.ok(); ++step) {
        status = wait_at_home(engine, begin_sum(engine, tensor));
        if (status.ok()) status = engine.await_results();
      }
      EXPECT_NE(status.message().find("remote process exited or there was a network error"), std::string::npos)
          << status.message();
      is_over.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
}

// A rank is lost while the other's kernel spins: the result of that call is void, though a wait has let it pass; its
// GPU is free again, and the engine can end.
void expect_no_kernel_is_left(Collective collective, const std::string& reduces) {
  expect_in_own_program([collective, reduces] {
    WorldOptions options = by_nccl(2);
    options.config.gpu_reduce = reduces;
    World world(2, options);
    std::barrier<> has_begun(2);
    std::latch is_over(2);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      Guarded tensor(40, Guarded::kAligned);
      // Rank 0 waits for rank 1, which gives.
      const auto begin = [&] {
        const int root = info(collective).is_from_root ? 1 : 0;
        const bool gives = info(collective).gives(engine.rank() == root);
        const bool is_empty = collective == Collective::kScatter && !gives;
        Request r = testing::request(collective, "call", DataType::kFloat32, {is_empty ? 0 : 10}, tensor.data());
        if (info(collective).has_root) r.signature.root = root;
        if (info(collective).takes_splits && gives) r.splits = {{5, 5}};
        if (info(collective).allocates_output) r.memory.front().output = nullptr;
        return submit_request(engine, std::move(r));
      };
      if (engine.rank() == 1) {
        const StandingStill still;
        has_begun.arrive_and_wait();
        const auto lost = begin();
        EXPECT_TRUE(engine.wait(lost).ok());
        has_begun.arrive_and_wait();
        world.fabric().kill(1);
        EXPECT_FALSE(engine.await_results().ok());
        has_begun.arrive_and_wait();  // the kernels could end well before their abort
      } else {
        has_begun.arrive_and_wait();
        const auto void_call = begin();
        EXPECT_TRUE(wait_at_home(engine, void_call).ok());
        has_begun.arrive_and_wait();
        const Status status = engine.await_results();
        EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
        EXPECT_NE(status.message().find("'call' is void"), std::string::npos) << status.message();
        EXPECT_FALSE(void_call->has_ended());
        has_begun.arrive_and_wait();
      }
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      is_over.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
}

TEST(NcclDeathTest, ALostRankLeavesNoKernelBehind) {
  for (const Collective collective : kNcclCollectives) {
    SCOPED_TRACE(std::string(to_string(collective)));
    expect_no_kernel_is_left(collective, "nccl");
    if (info(collective).is_reduction) expect_no_kernel_is_left(collective, "ciranda");
  }
}

// Nothing else than the end of its process frees a GPU whose kernels NCCL does not end.
TEST(NcclDeathTest, AnAbortThatDoesNotComeBackEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose_a_rank = [] {
    const Watchdog watchdog("NCCL");
    setenv("FAKE_NCCL_ABORT", "never", 1);
    cuda_home(0);
    World world(2, by_nccl(2));
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      await_all(engine);
      Guarded tensor(40, Guarded::kAligned);
      std::optional<StandingStill> still;
      if (engine.rank() == 1) still.emplace();
      const auto sum = begin_sum(engine, tensor);
      while (n_kernels_under_way() < 2) std::this_thread::yield();
      if (engine.rank() == 1) world.fabric().kill(1);
      EXPECT_FALSE(engine.await_results().ok());
      while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
    });
  };
  EXPECT_EXIT(lose_a_rank(), ::testing::ExitedWithCode(EXIT_FAILURE), "NCCL does not end its work on GPU ");
}

// Two worlds of the same GPUs, of which one loses a rank: NCCL hangs if their communicators are aborted one by one. The
// other world's call has no result, and says so.
TEST(NcclDeathTest, AllCommunicatorsOfAGpuAreAbortedTogether) {
  expect_in_own_program([] {
    setenv("FAKE_NCCL_ANY_ORDER", "1", 1);  // worlds have no order among each other
    World losing(2, by_nccl(2));
    World other(2, by_nccl(2));
    std::latch is_made(2), are_ready(4), stands_still(4), have_failed(4), is_over(4);
    const auto run = [&](Engine& engine, const char* message, const std::function<void(Engine&)>& lose) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      if (&engine != &other.engine(engine.rank())) is_made.count_down();
      Guarded tensor(40, Guarded::kAligned);
      are_ready.arrive_and_wait();
      std::optional<StandingStill> still;
      if (lose != nullptr && engine.rank() == 1) still.emplace();
      stands_still.arrive_and_wait();
      const auto sum = begin_sum(engine, tensor);
      if (still) lose(engine);
      static_cast<void>(engine.wait(sum));
      const Status status = engine.await_results();
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
      have_failed.arrive_and_wait();  // the other world's call could end well before its abort
      still.reset();
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      is_over.arrive_and_wait();
      end_program();
    };
    const std::jthread beside([&] {
      is_made.wait();  // both GPUs would wait, each for another communicator
      other.run([&](Engine& engine) { run(engine, "its communicator of NCCL was aborted", nullptr); });
    });
    losing.run([&](Engine& engine) {
      run(engine, "", [&](Engine&) {
        while (n_kernels_under_way() < 4) std::this_thread::yield();
        losing.fabric().kill(1);
      });
    });
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
