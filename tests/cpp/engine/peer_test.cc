// Collectives in the memory of GPUs, by the fake driver, whose checker ends the program where two uses of memory are
// not ordered: chunks and shares, homes that differ and change, memory that cannot be had, failures of the driver.
// (Every type and op: conformance_test.cc.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
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
#include "engine/sets.hpp"
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
  // In the order of the rank's stream: the host does not wait for it.
  void make_zero() {
    using Memset = cuda::CUresult(cuda::CUdeviceptr, unsigned char, std::size_t, cuda::CUstream);
    auto* const memset = testing::of_fake<Memset>("cuMemsetD8Async");
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const auto to = reinterpret_cast<cuda::CUdeviceptr>(tensors_[i].data());
      auto* const stream = static_cast<cuda::CUstream>(testing::home().place.queue);
      EXPECT_EQ(memset(to, 0, lengths_[i] * sizeof(std::int64_t), stream), cuda::CUresult::kSuccess);
    }
  }
  // All in one call, of the world or of this set.
  std::uint32_t process_set = 0;
  // These two in place.
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
  // Of two tensors of one length, from rank 0; both to the memory of the first if `shares`.
  Status broadcast_pair(Engine& engine, bool shares) {
    Request r = of_all(Collective::kBroadcast, "pair");
    r.signature.root = 0;
    if (shares) r.memory[1] = r.memory[0];
    return wait_at_home(engine, submit_request(engine, std::move(r)));
  }
  // Reduce, scan: in place.
  Status reduce(Engine& engine, Collective collective, const std::string& name, int root = -1) {
    Request r = of_all(collective, name);
    r.signature.root = root;
    return wait_at_home(engine, submit_request(engine, std::move(r)));
  }
  // From this rank, if it is not `from`, or to it: in place.
  Engine::OperationPtr transfer(Engine& engine, int from, int with, const std::string& name) {
    Request r = of_all(Collective::kTransfer, name);
    r.signature.root = from;
    r.process_set = engine.pair_with(with);
    for (TensorMemory& memory : r.memory) {
      if (engine.rank() == from) memory.output = nullptr;
    }
    return submit_request(engine, std::move(r));
  }
  // Allgather, gather, reducescatter; alltoall and scatter in parts as even as can be: to memory of the engine's.
  Engine::OperationPtr start(Engine& engine, Collective collective, const std::string& name, int root = -1) {
    Request r = of_all(collective, name);
    r.signature.root = root;
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
    r.process_set = process_set;
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

// What the rank's stream makes of them may not be there yet when the call is made; staged, too.
TEST(PeerDeathTest, InputsAreReadAfterWhatTheirStreamDoesBefore) {
  for (const Homes homes : {Homes::kCuda, Homes::kCudaStaged}) {
    expect_in_own_program([homes] {
      WorldOptions options = on_gpu(3);
      options.homes = homes;
      World world(3, options);
      world.run([](Engine& engine) {
        Tensors tensors({10, 3000, 2 * kSlot});
        EXPECT_TRUE(tensors.sum(engine).ok());
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_DELAY_SEED", "7");
        for (int step = 0; step < 3; ++step) {
          tensors.make_zero();
          const Status status = tensors.sum(engine);
          ASSERT_TRUE(status.ok()) << status.message();
        }
        tensors.expect_times(0);
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

constexpr int kRoot = 1;  // of gathers and scatters

// Scans, and reduces to roots in turn.
TEST(PeerDeathTest, ReducesAndScansOfEverySize) {
  for (const int size : {2, 4}) {
    expect_in_own_program([size] {
      run_by_peer(
          size,
          [](Engine& engine) {
            Groups all = all_groups(engine.rank() + 1);
            for (auto& more : all_groups(engine.rank() + 1)) all.push_back(std::move(more));
            return all;
          },
          [size](Engine& engine, Groups& all) {
            for (std::size_t i = 0; i < all.size(); ++i) {
              const bool scans = i >= kGroups.size();
              const int root = scans ? -1 : static_cast<int>(i) % size;
              const Collective collective = scans ? Collective::kScan : Collective::kReduce;
              const Status status = all[i]->reduce(engine, collective, std::to_string(i), root);
              ASSERT_TRUE(status.ok()) << status.message();
            }
            await_all(engine);
            for (std::size_t i = 0; i < all.size(); ++i) {
              SCOPED_TRACE("call " + std::to_string(i) + ", rank " + std::to_string(engine.rank()));
              const auto upto = [](std::int64_t n) { return n * (n + 1) / 2; };
              const bool is_root = static_cast<int>(i) % size == engine.rank();
              const bool scans = i >= kGroups.size();
              all[i]->expect_times(scans ? upto(engine.rank() + 1) : is_root ? upto(size) : engine.rank() + 1);
            }
          });
    });
  }
}

// While the GPU has not begun with the first chunk, it is given the second one.
TEST(PeerDeathTest, TwoChunksAreUnderWay) {
  expect_in_own_program([] {
    // Each sum waits for its input, and has two operations in each stage. The streams of ranks come first.
    const std::string file = ::testing::TempDir() + "ciranda_begins_" + std::to_string(getpid());
    std::string stills;
    for (int stream = 10; stream < 20; ++stream) stills += std::to_string(stream) + ":7:" + file + ",";
    World world(2, on_gpu(2));
    world.run([&](Engine& engine) {
      Tensors first({1});
      Tensors second({3 * kSlot});
      EXPECT_TRUE(first.sum(engine).ok());
      await_all(engine);
      if (engine.rank() == 0) set_fake("FAKE_CUDA_STILL", stills);
      await_all(engine);
      std::thread begins([&] {
        if (engine.rank() != 0) return;
        while (n_fake_calls("cuLaunchKernel") < 4) std::this_thread::yield();
        EXPECT_EQ(n_fake_calls("cuLaunchKernel"), 4U);
        const std::ofstream made(file);
      });
      const Status status = second.sum(engine);
      begins.join();
      EXPECT_TRUE(status.ok()) << status.message();
      second.expect_times(2);
      await_all(engine);
      unlink(file.c_str());
    });
  });
}

// Around a ring from host memory.
void pass_on_in_host_memory(Engine& engine, int before, int next, bool is_awaited) {
  const AtHome at_host(Home{});
  std::vector<float> sent(333, static_cast<float>(engine.rank()));
  std::vector<float> received(333, -1);
  std::vector<Engine::OperationPtr> operations;
  for (const int from : {engine.rank(), before}) {
    const bool sends = from == engine.rank();
    Request r =
        request(Collective::kTransfer, "on the host", DataType::kFloat32, {333}, sends ? sent.data() : received.data());
    r.signature.root = from;
    r.process_set = engine.pair_with(sends ? next : before);
    r.is_awaited = is_awaited && !sends;
    if (sends) r.memory.front().output = nullptr;
    operations.push_back(submit_request(engine, std::move(r)));
  }
  for (const auto& operation : operations) {
    const Status status = engine.wait(operation);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(received, std::vector<float>(333, static_cast<float>(before)));
}

// Around a ring, both ends of all pairs at once. Each turn, the pairs then exchange what lies in host memory.
TEST(PeerDeathTest, TransfersOfEverySize) {
  expect_in_own_program([] {
    struct Ends {
      Groups sent;
      Groups received;
    };
    run_by_peer(
        3, [](Engine& engine) { return Ends{.sent = all_groups(engine.rank() + 1), .received = all_groups(9)}; },
        [](Engine& engine, Ends& ends) {
          const int next = (engine.rank() + 1) % 3;
          const int before = (engine.rank() + 2) % 3;
          for (std::size_t i = 0; i < kGroups.size(); ++i) {
            const auto sent = ends.sent[i]->transfer(engine, engine.rank(), next, std::to_string(i));
            const auto received = ends.received[i]->transfer(engine, before, before, std::to_string(i));
            for (const auto& operation : {sent, received}) {
              const Status status = wait_at_home(engine, operation);
              ASSERT_TRUE(status.ok()) << status.message();
            }
            pass_on_in_host_memory(engine, before, next, i % 2 == 1);
          }
          await_all(engine);
          for (const auto& tensors : ends.sent) tensors->expect_times(engine.rank() + 1);
          for (const auto& tensors : ends.received) tensors->expect_times(before + 1);
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
  if (collective == Collective::kScatter) {
    expected.assign(static_cast<std::size_t>(part), value * (kRoot + 1));
    return expected;
  }
  for (int from = 0; from < size && (collective != Collective::kGather || rank == kRoot); ++from) {
    const auto n_rows =
        collective == Collective::kAlltoall ? static_cast<std::size_t>(part) : length + static_cast<std::size_t>(from);
    expected.insert(expected.end(), n_rows, value * (from + 1));
  }
  return expected;
}

// To memory that the engine allocates on the GPU.
TEST(PeerDeathTest, RowsOfEverySize) {
  static constexpr std::array kCollectives{Collective::kAllgather, Collective::kGather, Collective::kReducescatter,
                                           Collective::kAlltoall, Collective::kScatter};
  for (const int size : {2, 3}) {
    expect_in_own_program([size] {
      std::vector<std::vector<Engine::OperationPtr>> done(static_cast<std::size_t>(size));  // by rank
      run_by_peer(
          size,
          [](Engine& engine) {
            Groups all;
            for (const Collective collective : kCollectives) {
              const bool is_uneven = info(collective).first_dim_may_differ;
              const bool gives = collective != Collective::kScatter || engine.rank() == kRoot;
              for (std::vector<std::size_t> lengths : kGroups) {
                for (std::size_t& length : lengths) {
                  length = !gives ? 0 : length + (is_uneven ? static_cast<std::size_t>(engine.rank()) : 0);
                }
                all.push_back(std::make_unique<Tensors>(std::move(lengths), engine.rank() + 1));
              }
            }
            return all;
          },
          [&](Engine& engine, Groups& all) {
            auto& operations = done[static_cast<std::size_t>(engine.rank())];
            for (std::size_t i = 0; i < all.size(); ++i) {
              const Collective collective = kCollectives[i / kGroups.size()];
              const int root = info(collective).has_root ? kRoot : -1;
              operations.push_back(all[i]->start(engine, collective, std::to_string(i), root));
              const Status status = wait_at_home(engine, operations.back());
              ASSERT_TRUE(status.ok()) << status.message();
            }
            await_all(engine);
            for (std::size_t i = 0; i < all.size(); ++i) {
              const auto& lengths = kGroups[i % kGroups.size()];
              const bool gets_none = kCollectives[i / kGroups.size()] == Collective::kGather && engine.rank() != kRoot;
              EXPECT_EQ(operations[i]->outputs().empty(), gets_none);
              for (std::size_t tensor = 0; tensor < lengths.size() && !gets_none; ++tensor) {
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
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync:2:2");
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

WorldOptions compared(int size) {
  WorldOptions options = on_gpu(size);
  options.config.check_consistency = 1;
  return options;
}

// By checksums of what is in the GPUs' memory: nothing is copied to the host but these.
TEST(PeerDeathTest, ResultsAreComparedOnTheGpu) {
  expect_in_own_program([] {
    World world(3, compared(3));
    world.run([](Engine& engine) {
      Tensors tensors({10, 0, 3 * kSlot + 5});
      EXPECT_TRUE(tensors.sum(engine).ok());
      await_all(engine);
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemcpyDtoHAsync:1000:1");  // counts from here
      await_all(engine);
      for (const std::string name : {"sum", "again"}) EXPECT_TRUE(tensors.sum(engine, name).ok());
      const Status gathered = wait_at_home(engine, tensors.start(engine, Collective::kAllgather, "rows"));
      EXPECT_TRUE(gathered.ok()) << gathered.message();
      EXPECT_EQ(n_fake_calls("cuMemcpyDtoHAsync"), 0U);
      await_all(engine);
      tensors.expect_times(27);
    });
  });
}

// Rank 1 gives two tensors of a call the same memory.
TEST(PeerDeathTest, ResultsThatDifferOnTheGpuAreNamed) {
  for (const char* n_pinned_bytes : {"1000000000", "0"})
    expect_in_own_program([n_pinned_bytes] {
      set_fake("FAKE_CUDA_PINNED", n_pinned_bytes);
      World world(3, compared(3));
      world.run([](Engine& engine) {
        Tensors tensors({100, 100});
        const Status status = tensors.broadcast_pair(engine, engine.rank() == 1);
        EXPECT_EQ(status.kind(), ErrorKind::kMismatch);
        EXPECT_NE(
            status.message().find("broadcast 'pair', tensor 0 of the group has other bits on rank 1 than on ranks"),
            std::string::npos)
            << status.message();
        EXPECT_TRUE(tensors.sum(engine).ok());
      });
    });
}

// The results of the others are alike, which is not an error.
TEST(PeerDeathTest, AResultWithoutMemoryIsNotCompared) {
  expect_in_own_program([] {
    World world(3, compared(3));
    std::atomic<int> n_failed = 0;
    world.run([&](Engine& engine) {
      Tensors tensors({2000, 10}, engine.rank() + 1);
      EXPECT_TRUE(wait_at_home(engine, tensors.start(engine, Collective::kAllgather, "rows")).ok());
      await_all(engine);
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocFromPoolAsync:1:2");
      await_all(engine);
      const Status status = wait_at_home(engine, tensors.start(engine, Collective::kAllgather, "rows"));
      if (!status.ok()) {
        ++n_failed;
        EXPECT_NE(status.message().find("no memory on GPU 0 (GPU-"), std::string::npos) << status.message();
      }
      await_all(engine);
      EXPECT_EQ(n_failed, 1);
    });
  });
}

TEST(PeerDeathTest, WithoutMemoryForAllItIsStaged) {
  static constexpr const char* kNone = "cuMemAlloc:1:2,cuMemAlloc:2:2,cuMemAlloc:3:2,cuMemAlloc:4:2";
  static constexpr const char* kQuarter = "cuMemAlloc:1:2,cuMemAlloc:2:2";
  for (const char* fault : {kNone, kQuarter, "cuMemAlloc:1:2", "cuIpcGetMemHandle:1:801", "cuIpcGetMemHandle:2:801"}) {
    expect_in_own_program([fault] {
      World world(2, on_gpu(2));
      world.run([&](Engine& engine) {
        Tensors tensors({10, 3000});
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", fault);
        await_all(engine);
        for (std::int64_t step = 0, factor = 2; step < 3; ++step, factor *= 2) {
          const Status status = tensors.sum(engine);
          ASSERT_TRUE(status.ok()) << status.message();
          tensors.expect_times(factor);
        }
        // One allocation that fails is made up for by one of half the size, or of a quarter.
        const bool is_by_peer = std::string(fault) == "cuMemAlloc:1:2" || fault == kQuarter;
        const std::uint64_t n_puts = n_fake_calls("cuMemcpyHtoDAsync");
        EXPECT_EQ(n_puts == 0, is_by_peer) << n_puts;
      });
    });
  }
}

// In which descriptions of many ranges lie, so these are copied one by one.
TEST(PeerDeathTest, WithoutPinnedMemoryItGoesByPeer) {
  expect_in_own_program([] {
    set_fake("FAKE_CUDA_PINNED", "0");
    run_by_peer(
        3, [](Engine&) { return all_groups(1); },
        [](Engine& engine, Groups& all) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            const Status status = all[i]->sum(engine, std::to_string(i));
            ASSERT_TRUE(status.ok()) << status.message();
            all[i]->expect_times(3);
          }
        });
  });
}

// By which its ranks would tell each other of their memory on GPUs.
TEST(PeerDeathTest, ASetWithoutSharedMemoryIsStaged) {
  expect_in_own_program([] {
    WorldOptions options = on_gpu(3);
    options.config.slot_bytes = std::int64_t{1} << 58;  // more than the host has
    World world(3, options);
    world.run([](Engine& engine) {
      Tensors tensors({10, 3000});
      tensors.process_set = testing::add_set(engine, {0, 1});
      if (engine.rank() == 2) return;
      for (const std::int64_t factor : {2, 4}) {
        const Status status = tensors.sum(engine);
        ASSERT_TRUE(status.ok()) << status.message();
        tensors.expect_times(factor);
      }
    });
  });
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
  for (int nth = 1; nth <= 103; ++nth) {
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
        if (status.ok()) status = tensors.reduce(engine, Collective::kReduce, "reduce", 1);
        if (status.ok()) status = tensors.reduce(engine, Collective::kScan, "scan");
        if (status.ok()) status = wait_at_home(engine, tensors.start(engine, Collective::kGather, "gather", 0));
        if (status.ok()) status = wait_at_home(engine, tensors.transfer(engine, 0, 1 - engine.rank(), "transfer"));
        EXPECT_TRUE(status.ok() || !status.message().empty());
        engine.shutdown();
        is_over.arrive_and_wait();
        end_program();
      });
    });
  }
}

// On the GPU, in each stage: the error of all ranks names it. It is of the call in which it failed: what comes later on
// such a GPU fails anyway.
TEST(PeerDeathTest, AKernelThatFailsNamesTheGpu) {
  struct Failure {
    const char* fault;
    const char* advice;
  };
  for (const Failure failure :
       {Failure{"cuLaunchKernel:1:700", "compute-sanitizer"}, Failure{"cuLaunchKernel:2:214", "dmesg"},
        Failure{"cuLaunchKernel:3:719", "compute-sanitizer"}}) {
    expect_in_own_program([failure] {
      World world(2, on_gpu(2));
      std::latch is_set(2), is_over(2);
      std::atomic<int> n_successes = 0;
      world.run([&](Engine& engine) {
        Tensors tensors({10});
        EXPECT_TRUE(tensors.sum(engine).ok());
        await_all(engine);
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL_RUN", failure.fault);
        is_set.arrive_and_wait();
        Status status = tensors.sum(engine);
        if (status.ok()) ++n_successes;
        for (int step = 0; step < 3 && status.ok(); ++step) status = tensors.sum(engine);
        EXPECT_FALSE(status.ok());
        EXPECT_NE(status.message().find("GPU 0 (GPU-"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(failure.advice), std::string::npos) << status.message();
        is_over.arrive_and_wait();
        EXPECT_LT(n_successes, 2);
        end_program();
      });
    });
  }
}

// As that of a GPU that has fallen off the bus, in a call of the driver that holds its lock.
TEST(PeerDeathTest, AQueryThatNeverReturnsIsNamed) {
  expect_in_own_program([] {
    WorldOptions options = on_gpu(2);
    end_stalls_soon(options.config);
    World world(2, options);
    std::latch is_set(2), is_over(2);
    world.run([&](Engine& engine) {
      Tensors tensors({10});
      EXPECT_TRUE(tensors.sum(engine).ok());
      await_all(engine);
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuEventQuery:1:hangs");
      is_set.arrive_and_wait();
      const Status status = tensors.sum(engine);
      EXPECT_EQ(status.kind(), ErrorKind::kTimeout);
      EXPECT_NE(status.message().find("GPU 0 (GPU-"), std::string::npos) << status.message();
      is_over.arrive_and_wait();
      end_program();
    });
  });
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
