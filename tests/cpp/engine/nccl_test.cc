// Allreduces by NCCL, by a fake one on the fake driver, each rank on a GPU of its own: sizes and layouts, types and
// ops, what is staged instead, and communicators that cannot be made, fail, or lose a rank.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/driver_api.hpp"
#include "engine/fake_driver.hpp"
#include "engine/guarded.hpp"
#include "engine/homes.hpp"
#include "engine/own_program.hpp"
#include "engine/requests.hpp"
#include "engine/watchdog.hpp"
#include "engine/worlds_test.hpp"

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
using testing::n_fake_calls;
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

// Counts calls of the driver from here on.
void count_from_here(Engine& engine) {
  await_all(engine);
  if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemcpyHtoDAsync:100000:1");
  await_all(engine);
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

// Kernels of NCCL of all ranks, since calls are counted.
std::uint64_t n_by_nccl() { return n_fake_calls("fake_cuda_launch"); }

// Kernels of the fake NCCL in this process that have not ended.
std::uint64_t n_kernels_under_way() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "fake_nccl_n_under_way"))();
}

Engine::OperationPtr begin_sum(Engine& engine, Guarded& tensor) {
  return submit_request(engine,
                        testing::request(Collective::kAllreduce, "sum", DataType::kFloat32, {10}, tensor.data()));
}

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
        count_from_here(engine);
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
      count_from_here(engine);
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

TEST(NcclDeathTest, WhatNcclLacksIsStaged) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    world.run([&](Engine& engine) {
      count_from_here(engine);
      expect_of<std::int64_t>(engine, {10}, INT64_MAX, INT64_MAX, "average", {.op = ReduceOp::kAverage});
      expect_of<std::int32_t>(engine, {10}, 3, 12, "scaled", {.prescale = 2});
      expect_of<float>(engine, {10}, 3, 3, "greatest", {.op = ReduceOp::kMax});
      expect_of<std::int32_t>(engine, {10}, 6, 6, "bits", {.op = ReduceOp::kBitwiseAnd});
      await_all(engine);
      EXPECT_EQ(n_by_nccl(), 0U);
    });
  });
}

// If one rank has no NCCL that can be used, all take another way.
TEST(NcclDeathTest, WithoutACommunicatorItIsStaged) {
  constexpr const char* kSame = "a GPU for two";
  for (const std::string fault :
       {"FAKE_NCCL_VERSION=22601", "FAKE_NCCL_INIT=2", "FAKE_CUDA_FAIL=cuMemAlloc:1:2", kSame}) {
    SCOPED_TRACE(fault);
    expect_in_own_program([fault, kSame] {
      World world(2, by_nccl(2));
      if (const std::size_t end = fault.find('='); end != std::string::npos) {
        set_fake(fault.substr(0, end).c_str(), fault.substr(end + 1));
      }
      world.run([&](Engine& engine) {
        const AtHome at(fault == kSame ? cuda_home(engine.rank()) : testing::home());
        for (int step = 0; step < 3; ++step) expect_of<float>(engine, {10, 3000}, 2, 4, "sum");
        await_all(engine);
        EXPECT_EQ(n_by_nccl(), 0U);
      });
    });
  }
}

// A communicator that is never made: the ranks name their GPUs, and the job ends at the limit of stalls.
TEST(NcclDeathTest, ACommunicatorThatIsNeverMadeIsNamed) {
  expect_in_own_program([] {
    WorldOptions options = by_nccl(2);
    testing::end_stalls_soon(options.config);
    World world(2, options);
    set_fake("FAKE_NCCL_INIT", "never");
    std::latch is_over(2);
    world.run([&](Engine& engine) {
      Guarded tensor(40, Guarded::kAligned);
      const Status status = wait_at_home(engine, begin_sum(engine, tensor));
      EXPECT_NE(status.message().find("GPU"), std::string::npos) << status.message();
      is_over.arrive_and_wait();
      end_program();
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
      }
      EXPECT_NE(status.message().find("remote process exited or there was a network error"), std::string::npos)
          << status.message();
      is_over.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
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

// A rank is lost while the other's kernel spins: that call fails, its GPU is free again, and the engine can end.
TEST(NcclDeathTest, ALostRankLeavesNoKernelBehind) {
  expect_in_own_program([] {
    World world(2, by_nccl(2));
    std::latch has_begun(2), is_over(2);
    world.run([&](Engine& engine) {
      expect_of<float>(engine, {10}, 2, 4, "sum");
      Guarded tensor(40, Guarded::kAligned);
      if (engine.rank() == 1) {
        const StandingStill still;
        has_begun.arrive_and_wait();
        const auto lost = begin_sum(engine, tensor);
        world.fabric().kill(1);
        EXPECT_FALSE(engine.wait(lost).ok());
      } else {
        has_begun.arrive_and_wait();
        const Status status = wait_at_home(engine, begin_sum(engine, tensor));
        EXPECT_EQ(status.kind(), ErrorKind::kRanksLost) << status.message();
      }
      while (n_kernels_under_way() > 0) std::this_thread::yield();
      is_over.arrive_and_wait();
      end_program();  // tensors of calls that failed may not be freed yet
    });
  });
}

// Two worlds of the same GPUs, of which one loses a rank: NCCL hangs if their communicators are aborted one by one. The
// other world's call has no result, and says so.
TEST(NcclDeathTest, AllCommunicatorsOfAGpuAreAbortedTogether) {
  expect_in_own_program([] {
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
      const Status status = engine.wait(sum);
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
