// Allreduces in the memory of GPUs, by the fake driver, whose checker ends the program where two uses of memory are not
// ordered: chunks and shares, homes that differ and change, memory that cannot be had, failures of the driver. (Every
// type and op: conformance_test.cc.)
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
using testing::cuda_home;
using testing::end_program;
using testing::end_stalls_soon;
using testing::Guarded;
using testing::Home;
using testing::Homes;
using testing::Layout;
using testing::n_fake_calls;
using testing::options_for;
using testing::request;
using testing::set_fake;
using testing::wait_at_home;
using testing::Watchdog;
using testing::World;
using testing::WorldOptions;

using Values = std::vector<std::int64_t>;

// The tensors that a rank sums: tensor i has lengths[i] values, all i + 1 at first.
class Tensors {
 public:
  explicit Tensors(std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Values values(lengths_[i], static_cast<std::int64_t>(i + 1));
      tensors_.emplace_back(std::as_bytes(std::span(values)), i % 3 == 1 ? Guarded::kMisaligned : Guarded::kAligned);
    }
  }
  // In one call.
  Status sum(Engine& engine, const std::string& name = "sum", bool is_awaited = false) {
    Request r;
    r.is_awaited = is_awaited;
    r.name = name;
    r.signature.collective = Collective::kAllreduce;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Request one = request(Collective::kAllreduce, "", DataType::kInt64,
                                  {static_cast<std::int64_t>(lengths_[i])}, tensors_[i].data());
      r.signature.tensors.push_back(one.signature.tensors.front());
      r.memory.push_back(one.memory.front());
    }
    return wait_at_home(engine, submit_request(engine, std::move(r)));
  }
  void expect_times(std::int64_t factor) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Values expected(lengths_[i], static_cast<std::int64_t>(i + 1) * factor);
      EXPECT_TRUE(tensors_[i].holds(std::as_bytes(std::span(expected)))) << "tensor " << i;
      EXPECT_TRUE(tensors_[i].is_intact()) << "beside tensor " << i;
    }
  }

 private:
  std::vector<std::size_t> lengths_;
  std::vector<Guarded> tensors_;
};

// Slots on a GPU are eight times as large as the arena's.
constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kGpuSlotBytes = 8 * kSlotBytes;

WorldOptions on_gpu(int size) {
  WorldOptions options = options_for(Layout::kArena, size);
  options.homes = Homes::kCuda;
  options.fabric.slot_bytes = kSlotBytes;
  options.config.slot_bytes = kSlotBytes;
  return options;
}

// With the driver loaded.
void expect_in_own_program(const std::function<void()>& scenario) {
  testing::expect_in_own_program([&] {
    const Watchdog watchdog("GPUs' memory");
    cuda_home(0);
    scenario();
  });
}

// Until all ranks are here.
void await_all(Engine& engine) {
  Request barrier;
  barrier.name = "all";
  barrier.signature.collective = Collective::kBarrier;
  const Status status = engine.wait(submit_request(engine, barrier));
  EXPECT_TRUE(status.ok()) << "rank " << engine.rank() << ": " << status.message();
}

// By one shot and by two, in part of a chunk and in several, in one piece and in many; on late streams.
TEST(PeerDeathTest, SumsOfEverySize) {
  for (const int size : {2, 3, 5}) {
    expect_in_own_program([size] {
      World world(size, on_gpu(size));
      constexpr std::size_t kSlot = kGpuSlotBytes / sizeof(std::int64_t);
      const std::vector<std::vector<std::size_t>> groups{
          {1}, {kSlot / 16}, {kSlot / 16 + 1}, {kSlot - 1}, {kSlot}, {3 * kSlot + 5}, {7, 0, kSlot, 1, 2 * kSlot, 13}};
      world.run([&](Engine& engine) {
        std::vector<std::unique_ptr<Tensors>> all;
        for (const auto& lengths : groups) all.push_back(std::make_unique<Tensors>(lengths));
        await_all(engine);
        if (engine.rank() == 0) {
          set_fake("FAKE_CUDA_DELAY_SEED", "7");
          set_fake("FAKE_CUDA_FAIL", "cuMemcpyHtoDAsync:1000:1");  // counts from here
        }
        await_all(engine);
        for (std::int64_t step = 1, factor = size; step <= 2; ++step, factor *= size) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            const Status status = all[i]->sum(engine, std::to_string(i));
            ASSERT_TRUE(status.ok()) << status.message();
          }
        }
        EXPECT_EQ(n_fake_calls("cuMemcpyHtoDAsync"), 0U);
        EXPECT_GT(n_fake_calls("cuLaunchKernel"), 0U);
        await_all(engine);
        for (const auto& tensors : all) tensors->expect_times(static_cast<std::int64_t>(size) * size);
      });
    });
  }
}

// A rank whose tensors lie elsewhere at each call; also if calls in host memory wait, and could go by a direct round.
TEST(PeerDeathTest, AHomeMayChange) {
  for (const bool is_awaited : {false, true})
    expect_in_own_program([is_awaited] {
      World world(2, on_gpu(2));
      world.run([is_awaited](Engine& engine) {
        const Home on_gpu = testing::home();
        for (const bool is_on_gpu : {true, true, false, false, true, false, true}) {
          const AtHome at(engine.rank() == 0 || is_on_gpu ? on_gpu : Home{});
          Tensors tensors({10});
          for (const std::int64_t factor : {2, 4}) {
            const Status status = tensors.sum(engine, "sum", is_awaited);
            ASSERT_TRUE(status.ok()) << status.message();
            tensors.expect_times(factor);
          }
        }
      });
    });
}

TEST(PeerDeathTest, WithoutMemoryForAllItIsStaged) {
  for (const char* fault : {"cuMemAlloc:*", "cuIpcGetMemHandle:1:801", "cuIpcGetMemHandle:2:801", "cuMemAlloc:1:2"}) {
    expect_in_own_program([fault] {
      const bool has_none = std::string(fault) == "cuMemAlloc:*";
      World world(2, on_gpu(2));
      world.run([&](Engine& engine) {
        Tensors tensors({10, 3000});
        await_all(engine);
        if (engine.rank() == 0) {
          set_fake("FAKE_CUDA_FAIL", has_none ? "cuMemAlloc:1:2,cuMemAlloc:2:2,cuMemAlloc:3:2,cuMemAlloc:4:2" : fault);
        }
        await_all(engine);
        for (std::int64_t step = 0, factor = 2; step < 3; ++step, factor *= 2) {
          const Status status = tensors.sum(engine);
          ASSERT_TRUE(status.ok()) << status.message();
          tensors.expect_times(factor);
        }
        // One allocation that fails is made up for by a smaller one.
        const bool is_by_peer = std::string(fault) == "cuMemAlloc:1:2";
        const std::uint64_t n_puts = n_fake_calls("cuMemcpyHtoDAsync");
        EXPECT_EQ(n_puts == 0, is_by_peer) << n_puts;
      });
    });
  }
}

// Whichever call of the driver fails, all ranks get an error or their results, and nobody hangs.
TEST(PeerDeathTest, AnyCallOfTheDriverMayFail) {
  for (int nth = 1; nth <= 24; ++nth) {
    SCOPED_TRACE("call " + std::to_string(nth));
    expect_in_own_program([nth] {
      World world(2, on_gpu(2));
      std::latch is_set(2), is_over(2);
      world.run([&](Engine& engine) {
        Tensors tensors({10, 6000});
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "*:" + std::to_string(nth) + ":719");
        is_set.arrive_and_wait();  // no barrier: one rank may fail while the other is still in it
        Status status;
        for (int step = 0; step < 3 && status.ok(); ++step) status = tensors.sum(engine);
        EXPECT_TRUE(status.ok() || !status.message().empty());
        engine.shutdown();  // the other rank may wait for a call that was refused on this one
        is_over.arrive_and_wait();
        end_program();  // a GPU that has failed frees nothing
      });
    });
  }
}

// A GPU that does not come to a call: its rank names it, and the job ends at the limit of stalls.
TEST(PeerDeathTest, AGpuThatDoesNotComeIsNamed) {
  expect_in_own_program([] {
    WorldOptions options = on_gpu(2);
    end_stalls_soon(options.config);
    World world(2, options);
    world.run([](Engine& engine) {
      Tensors tensors({10});
      EXPECT_TRUE(tensors.sum(engine).ok());
      // No operation of any stream that is given from now on begins.
      if (engine.rank() == 0) set_fake("FAKE_CUDA_DELAY_US", "1000000000"), set_fake("FAKE_CUDA_DELAY_SEED", "1");
      Status status;
      for (int step = 0; step < 100 && status.ok(); ++step) status = tensors.sum(engine);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("GPU 0 (GPU-"), std::string::npos) << status.message();
      end_program();
    });
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
