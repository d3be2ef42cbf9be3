// Collectives in the memory of GPUs, by the fake driver, whose checker ends the program where two uses of memory are
// not ordered: chunks and shares, homes that differ and change, memory that cannot be had, failures of the driver.
// (Every type and op: conformance_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
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
using testing::await_all;
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

// The tensors of a rank: tensor i has lengths[i] values, all (i + 1) * factor at first.
class Tensors {
 public:
  explicit Tensors(std::vector<std::size_t> lengths, std::int64_t factor = 1) : lengths_(std::move(lengths)) {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Values values(lengths_[i], static_cast<std::int64_t>(i + 1) * factor);
      tensors_.emplace_back(std::as_bytes(std::span(values)), i % 3 == 1 ? Guarded::kMisaligned : Guarded::kAligned);
    }
  }
  // All in one call; these two in place.
  Status sum(Engine& engine, const std::string& name = "sum", bool is_awaited = false) {
    Request r = of_all(Collective::kAllreduce, name);
    r.is_awaited = is_awaited;
    return wait_at_home(engine, submit_request(engine, std::move(r)));
  }
  Status broadcast(Engine& engine, int root, const std::string& name = "broadcast") {
    Request r = of_all(Collective::kBroadcast, name);
    r.signature.root = root;
    return wait_at_home(engine, submit_request(engine, std::move(r)));
  }
  // Allgather, reducescatter, alltoall in parts as even as can be: to memory of the engine's.
  Engine::OperationPtr start(Engine& engine, Collective collective, const std::string& name) {
    Request r = of_all(collective, name);
    for (TensorMemory& memory : r.memory) memory.output = nullptr;
    for (std::size_t i = 0; collective == Collective::kAlltoall && i < lengths_.size(); ++i) {
      r.splits.push_back(even_splits(static_cast<std::int64_t>(lengths_[i]), engine.size()));
    }
    return submit_request(engine, std::move(r));
  }
  void expect_times(std::int64_t factor) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Values expected(lengths_[i], static_cast<std::int64_t>(i + 1) * factor);
      EXPECT_TRUE(tensors_[i].holds(std::as_bytes(std::span(expected)))) << "tensor " << i;
      EXPECT_TRUE(tensors_[i].is_intact()) << "beside tensor " << i;
    }
  }

 private:
  Request of_all(Collective collective, const std::string& name) {
    Request r;
    r.name = name;
    r.signature.collective = collective;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Request one =
          request(collective, "", DataType::kInt64, {static_cast<std::int64_t>(lengths_[i])}, tensors_[i].data());
      r.signature.tensors.push_back(one.signature.tensors.front());
      r.memory.push_back(one.memory.front());
    }
    return r;
  }

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

// Lengths of the tensors of a call: part of a chunk and several, in one piece and in many.
constexpr std::size_t kSlot = kGpuSlotBytes / sizeof(std::int64_t);
const std::vector<std::vector<std::size_t>> kGroups{
    {1}, {kSlot / 16}, {kSlot / 16 + 1}, {kSlot - 1}, {kSlot}, {3 * kSlot + 5}, {7, 0, kSlot, 1, 2 * kSlot, 13}};

// Runs `calls` on all ranks, on late streams, and expects that no tensor of theirs goes by the host. `make` prepares
// what they use.
template <typename Make, typename Calls>
void run_by_peer(int size, Make make, Calls calls) {
  World world(size, on_gpu(size));
  world.run([&](Engine& engine) {
    auto used = make(engine);
    await_all(engine);
    if (engine.rank() == 0) {
      set_fake("FAKE_CUDA_DELAY_SEED", "7");
      set_fake("FAKE_CUDA_FAIL", "cuMemcpyHtoDAsync:1000:1");  // counts from here
    }
    await_all(engine);
    calls(engine, used);
    EXPECT_EQ(n_fake_calls("cuMemcpyHtoDAsync"), 0U);
    EXPECT_GT(n_fake_calls("cuLaunchKernel"), 0U);
    await_all(engine);
  });
}

using Groups = std::vector<std::unique_ptr<Tensors>>;

// One of each group, with the rank's own factor or that of all.
Groups all_groups(std::int64_t factor) {
  Groups all;
  for (const auto& lengths : kGroups) all.push_back(std::make_unique<Tensors>(lengths, factor));
  return all;
}

// By one shot and by two.
TEST(PeerDeathTest, SumsOfEverySize) {
  for (const int size : {2, 3, 5}) {
    expect_in_own_program([size] {
      run_by_peer(
          size, [](Engine&) { return all_groups(1); },
          [size](Engine& engine, Groups& all) {
            for (int step = 0; step < 2; ++step) {
              for (std::size_t i = 0; i < all.size(); ++i) {
                const Status status = all[i]->sum(engine, std::to_string(i));
                ASSERT_TRUE(status.ok()) << status.message();
              }
            }
            await_all(engine);
            for (const auto& tensors : all) tensors->expect_times(static_cast<std::int64_t>(size) * size);
          });
    });
  }
}

// From roots in turn.
TEST(PeerDeathTest, BroadcastsOfEverySize) {
  for (const int size : {2, 3}) {
    expect_in_own_program([size] {
      run_by_peer(
          size, [](Engine& engine) { return all_groups(engine.rank() + 1); },
          [size](Engine& engine, Groups& all) {
            for (std::size_t i = 0; i < all.size(); ++i) {
              const int root = static_cast<int>(i) % size;
              const Status status = all[i]->broadcast(engine, root, std::to_string(i));
              ASSERT_TRUE(status.ok()) << status.message();
            }
            await_all(engine);
            for (std::size_t i = 0; i < all.size(); ++i) {
              all[i]->expect_times(static_cast<std::int64_t>(i) % size + 1);
            }
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

// What a rank of `size` gets for tensor i of a call to which rank r gave lengths[i] values, and r more if it may, all
// (i + 1) * (r + 1).
Values expected_rows(Collective collective, std::size_t length, std::size_t i, int rank, int size) {
  Values expected;
  const Values parts = even_splits(static_cast<std::int64_t>(length), size);
  const std::int64_t part = parts[static_cast<std::size_t>(rank)];
  const auto value = static_cast<std::int64_t>(i + 1);
  if (collective == Collective::kReducescatter) {
    expected.assign(static_cast<std::size_t>(part), value * size * (size + 1) / 2);
    return expected;
  }
  for (int from = 0; from < size; ++from) {
    const auto n_rows =
        collective == Collective::kAllgather ? length + static_cast<std::size_t>(from) : static_cast<std::size_t>(part);
    expected.insert(expected.end(), n_rows, value * (from + 1));
  }
  return expected;
}

// To memory that the engine allocates on the GPU.
TEST(PeerDeathTest, RowsOfEverySize) {
  static constexpr std::array kCollectives{Collective::kAllgather, Collective::kReducescatter, Collective::kAlltoall};
  for (const int size : {2, 3}) {
    expect_in_own_program([size] {
      std::vector<std::vector<Engine::OperationPtr>> done(static_cast<std::size_t>(size));  // by rank
      run_by_peer(
          size,
          [](Engine& engine) {
            Groups all;
            for (const Collective collective : kCollectives) {
              const bool is_uneven = collective == Collective::kAllgather;
              for (std::vector<std::size_t> lengths : kGroups) {
                for (std::size_t& length : lengths) length += is_uneven ? static_cast<std::size_t>(engine.rank()) : 0;
                all.push_back(std::make_unique<Tensors>(std::move(lengths), engine.rank() + 1));
              }
            }
            return all;
          },
          [&](Engine& engine, Groups& all) {
            auto& operations = done[static_cast<std::size_t>(engine.rank())];
            for (std::size_t i = 0; i < all.size(); ++i) {
              const Collective collective = kCollectives[i / kGroups.size()];
              operations.push_back(all[i]->start(engine, collective, std::to_string(i)));
              const Status status = wait_at_home(engine, operations.back());
              ASSERT_TRUE(status.ok()) << status.message();
            }
            await_all(engine);
            for (std::size_t i = 0; i < all.size(); ++i) {
              const auto& lengths = kGroups[i % kGroups.size()];
              for (std::size_t tensor = 0; tensor < lengths.size(); ++tensor) {
                SCOPED_TRACE("call " + std::to_string(i) + ", tensor " + std::to_string(tensor));
                const OutputBuffer& output = operations[i]->outputs()[tensor];
                const Values expected =
                    expected_rows(kCollectives[i / kGroups.size()], lengths[tensor], tensor, engine.rank(), size);
                EXPECT_EQ(output.place.type, DeviceType::kCuda);
                EXPECT_EQ(output.shape, (Shape{static_cast<std::int64_t>(expected.size())}));
                EXPECT_TRUE(std::ranges::equal(testing::contents(output), std::as_bytes(std::span(expected))));
              }
            }
            await_all(engine);
            operations.clear();
          });
    });
  }
}

// The rank without it takes part, fails, and goes on.
TEST(PeerDeathTest, AResultWithoutMemoryFailsOnItsRank) {
  for (const Collective collective : {Collective::kAllgather, Collective::kReducescatter, Collective::kAlltoall}) {
    expect_in_own_program([collective] {
      World world(2, on_gpu(2));
      std::atomic<int> n_failed = 0;
      world.run([&](Engine& engine) {
        Tensors tensors({2000, 10}, engine.rank() + 1);
        EXPECT_TRUE(tensors.sum(engine).ok());
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocAsync:2:2");
        await_all(engine);
        Status status = wait_at_home(engine, tensors.start(engine, collective, "rows"));
        if (!status.ok()) {
          ++n_failed;
          EXPECT_NE(status.message().find("no memory on GPU 0 (GPU-"), std::string::npos) << status.message();
        }
        await_all(engine);
        EXPECT_EQ(n_failed, 1);
        status = wait_at_home(engine, tensors.start(engine, collective, "rows"));
        EXPECT_TRUE(status.ok()) << status.message();
      });
    });
  }
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

// Once they go by peer: also those with other stages, and with results on the GPU.
TEST(PeerDeathTest, AnyCallOfTheDriverMayFailLater) {
  for (int nth = 1; nth <= 61; nth += 4) {
    SCOPED_TRACE("call " + std::to_string(nth));
    expect_in_own_program([nth] {
      World world(2, on_gpu(2));
      std::latch is_set(2), is_over(2);
      world.run([&](Engine& engine) {
        Tensors tensors({10, 6000});
        EXPECT_TRUE(tensors.sum(engine).ok());
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "*:" + std::to_string(nth) + ":719");
        is_set.arrive_and_wait();
        Status status = tensors.broadcast(engine, 1);
        for (const Collective one : {Collective::kAllgather, Collective::kReducescatter, Collective::kAlltoall}) {
          if (status.ok()) status = wait_at_home(engine, tensors.start(engine, one, std::string(to_string(one))));
        }
        EXPECT_TRUE(status.ok() || !status.message().empty());
        engine.shutdown();
        is_over.arrive_and_wait();
        end_program();
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
