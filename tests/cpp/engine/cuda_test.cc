// Tensors on a GPU, by the fake driver, whose checker ends the program where two uses of memory are not ordered: what
// becomes of a call when the driver refuses something, and late streams. (Every collective, type and op:
// conformance_test.cc and rows_conformance_test.cc.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <latch>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/examined_devices.hpp"
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
using testing::backends_of;
using testing::cuda_home;
using testing::end_program;
using testing::expect_in_own_program;
using testing::Guarded;
using testing::Home;
using testing::home;
using testing::Homes;
using testing::kLayouts;
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

Request sum_of(Guarded& tensor, std::size_t n) {
  return request(Collective::kAllreduce, "sum", DataType::kInt64, {static_cast<std::int64_t>(n)}, tensor.data());
}

Request rows_of(Guarded& tensor, std::size_t n) {
  Request r = sum_of(tensor, n);
  r.name = "rows";
  r.signature.collective = Collective::kAllgather;
  r.memory.front().output = nullptr;
  return r;
}

Guarded tensor_of(const Values& values) { return {std::as_bytes(std::span(values)), Guarded::kAligned}; }

// Sums, and results that the GPU allocates, until a call fails on this rank. Returns whether none did.
bool make_calls(Engine& engine, Guarded& tensor, std::size_t n) {
  for (int i = 0; i < 2; ++i) {
    for (Request r : {sum_of(tensor, n), rows_of(tensor, n)}) {
      const Status status = wait_at_home(engine, submit_request(engine, std::move(r)));
      EXPECT_TRUE(status.ok() || !status.message().empty());
      if (!status.ok()) return false;
    }
  }
  return true;
}

// Sums of many tensors by one call: tensor i has lengths[i] values, all equal.
class Group {
 public:
  explicit Group(std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {
    for (std::size_t i = 0; i < lengths_.size(); ++i) tensors_.push_back(tensor_of(Values(lengths_[i], value(i, 1))));
  }

  Request request() {
    Request r;
    r.name = "group";
    r.signature.collective = Collective::kAllreduce;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      Request one = sum_of(tensors_[i], lengths_[i]);
      r.signature.tensors.push_back(one.signature.tensors.front());
      r.memory.push_back(one.memory.front());
    }
    return r;
  }
  Status sum(Engine& engine) { return wait_at_home(engine, submit_request(engine, request())); }
  // After `n` sums of ranks that began alike.
  void expect_sums(int size, int n) const {
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      std::int64_t factor = 1;
      for (int k = 0; k < n; ++k) factor *= size;
      const Values expected(lengths_[i], value(i, factor));
      EXPECT_TRUE(tensors_[i].holds(std::as_bytes(std::span(expected)))) << "tensor " << i;
      EXPECT_TRUE(tensors_[i].is_intact()) << "beside tensor " << i;
    }
  }

 private:
  static std::int64_t value(std::size_t tensor, std::int64_t factor) {
    return static_cast<std::int64_t>(tensor + 1) * factor;
  }

  std::vector<std::size_t> lengths_;
  std::vector<Guarded> tensors_;
};

// Of 0 to `most` values.
std::vector<std::size_t> lengths_of(std::size_t n_tensors, std::size_t most) {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < n_tensors; ++i) lengths.push_back(i * 7919 % (most + 1));
  return lengths;
}

// Rank 0 has its tensors on the GPU, rank 1 in host memory.
void run_beside_host(const std::function<void(Engine&)>& body, bool has_kernels = true) {
  const Watchdog watchdog("a GPU beside host memory");
  const Home gpu = cuda_home(0, has_kernels);
  WorldOptions options = options_for(Layout::kArena, 2);
  if (!has_kernels) options.homes = Homes::kCudaWithoutKernels;
  World world(2, options);
  world.run([&](Engine& engine) {
    const AtHome at(engine.rank() == 0 ? gpu : Home{});
    body(engine);
  });
}
void run_beside_host(const std::function<void(Engine&, Guarded&)>& body) {
  run_beside_host([&](Engine& engine) {
    Guarded tensor = tensor_of({1, 2, 3});
    body(engine, tensor);
  });
}

// Whichever call of the driver fails first, rank 0 gets an error or has made its calls, and rank 1 does not hang once
// rank 0 leaves. `calls` makes them on what `make_tensors` returns, and tells whether none failed on this rank.
template <typename MakeTensors, typename Calls>
void expect_any_call_may_fail(const MakeTensors& make_tensors, const Calls& calls) {
  expect_in_own_program([&] {
    run_beside_host([&](Engine& engine) {
      auto tensors = make_tensors();
      EXPECT_TRUE(calls(engine, tensors));
    });
  });
  for (int nth = 1; nth <= 60; ++nth) {
    for (const char* error : {"719", "2"}) {  // launch failed, which ends the context; out of memory
      SCOPED_TRACE("call " + std::to_string(nth) + ", error " + error);
      expect_in_own_program([&] {
        std::latch is_over(2);
        run_beside_host([&](Engine& engine) {
          auto tensors = make_tensors();
          if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "*:" + std::to_string(nth) + ":" + error);
          calls(engine, tensors);
          engine.shutdown();  // rank 1 may wait for a call that was refused on rank 0
          is_over.arrive_and_wait();
          if (engine.rank() == 0) end_program();
        });
      });
    }
  }
}

TEST(CudaDeathTest, AnyCallOfTheDriverMayFail) {
  expect_any_call_may_fail(
      [] {
        return tensor_of({1, 2, 3});
      },
      [](Engine& engine, Guarded& tensor) { return make_calls(engine, tensor, 3); });
}

// What rank 1 is given is right.
TEST(CudaDeathTest, AnyCallOfTheDriverMayFailInAGroup) {
  expect_any_call_may_fail([] { return Group(lengths_of(20, 300)); },
                           [](Engine& engine, Group& group) {
                             for (int n = 1; n <= 3; ++n) {
                               const Status status = group.sum(engine);
                               EXPECT_TRUE(status.ok() || !status.message().empty());
                               if (!status.ok()) return false;
                               if (engine.rank() == 1) group.expect_sums(2, n);
                             }
                             return true;
                           });
}

struct Counts {
  std::uint64_t launches = n_fake_calls("cuLaunchKernel");
  std::uint64_t fetches = n_fake_calls("cuMemcpyDtoHAsync");
  std::uint64_t puts = n_fake_calls("cuMemcpyHtoDAsync");
  std::uint64_t allocations = n_fake_calls("cuMemAllocAsync") + n_fake_calls("cuMemHostAlloc");
  std::uint64_t waits_and_records = n_fake_calls("cuStreamWaitEvent") + n_fake_calls("cuEventRecord");
};

struct CopyCounts {
  std::uint64_t launches;
  std::uint64_t fetches;
  std::uint64_t puts;
};
void expect_copies(const Counts& counts, const CopyCounts& expected) {
  EXPECT_EQ(counts.launches, expected.launches);
  EXPECT_EQ(counts.fetches, expected.fetches);
  EXPECT_EQ(counts.puts, expected.puts);
}

// What the driver is called for by the sum of a group on rank 0.
Counts counts_of_sum(Engine& engine, Group& group) {
  const Counts before;
  const Status status = group.sum(engine);
  EXPECT_TRUE(status.ok()) << status.message();
  Counts after;
  after.launches -= before.launches;
  after.fetches -= before.fetches;
  after.puts -= before.puts;
  after.allocations -= before.allocations;
  after.waits_and_records -= before.waits_and_records;
  return after;
}

TEST(CudaDeathTest, ManySmallTensorsTakeFewCallsOfTheDriver) {
  expect_in_own_program([] {
    run_beside_host([](Engine& engine) {
      Group group(lengths_of(161, 3000));
      std::uint64_t n_allocations = 0;
      for (int n = 1; n <= 10; ++n) {
        const Counts counts = counts_of_sum(engine, group);
        group.expect_sums(2, n);
        if (engine.rank() != 0) continue;  // that calls no driver
        n_allocations += counts.allocations;
        expect_copies(counts, {2, 1, 1});
        EXPECT_EQ(counts.waits_and_records, 6U);  // the two in the caller's stream included
      }
      EXPECT_LE(n_allocations, 8U);  // buffers, and blocks of two calls, of which one may not have ended
    });
  });
}

TEST(CudaDeathTest, LongGroupsAreCopiedInWindows) {
  expect_in_own_program([] {
    run_beside_host([](Engine& engine) {
      std::vector<std::size_t> lengths = lengths_of(100, 20'000);  // 8 MB
      lengths[30] = 3'000'000;                                     // 24 MB
      Group group(lengths);
      const Counts counts = counts_of_sum(engine, group);
      group.expect_sums(2, 1);
      // Windows to the host begin with tensors at their places in the block, chunks back with bytes that are combined.
      if (engine.rank() == 0) expect_copies(counts, {6, 8, 10});
    });
  });
}

TEST(CudaDeathTest, WithoutKernelsEachTensorIsCopied) {
  expect_in_own_program([] {
    run_beside_host(
        [](Engine& engine) {
          Group group(std::vector<std::size_t>(20, 100));
          const Counts counts = counts_of_sum(engine, group);
          group.expect_sums(2, 1);
          if (engine.rank() == 0) expect_copies(counts, {0, 20, 20});
        },
        false);
  });
}

TEST(CudaDeathTest, WithoutMemoryForTheBufferEachTensorIsCopied) {
  expect_in_own_program([] {
    run_beside_host([](Engine& engine) {
      Group group(std::vector<std::size_t>(20, 100));
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocAsync:1:2,cuMemAllocAsync:2:2");
      for (const bool has_memory : {false, true}) {
        const Counts counts = counts_of_sum(engine, group);
        if (engine.rank() == 0) expect_copies(counts, has_memory ? CopyCounts{2, 1, 1} : CopyCounts{0, 20, 20});
      }
      group.expect_sums(2, 2);
    });
  });
}

TEST(CudaDeathTest, ACopyThatFailsNamesTheGpuOnAllRanks) {
  expect_in_own_program([] {
    std::latch is_over(2);
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL_RUN", "cuMemcpyDtoHAsync:1:700");
      const Status status = engine.wait(submit_request(engine, sum_of(tensor, 3)));
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("GPU 0"), std::string::npos) << status.message();
      is_over.arrive_and_wait();
      end_program();  // its memory cannot be freed any more
    });
  });
}

// Rank 1 may have its result before rank 0 fails to copy its own.
TEST(CudaDeathTest, ACopyThatIsRefusedFailsItsCall) {
  for (const char* fault : {"cuMemcpyDtoHAsync:1:1", "cuMemcpyHtoDAsync:1:1"}) {
    expect_in_own_program([fault] {
      std::latch is_set(2);
      std::latch is_over(2);
      run_beside_host([&](Engine& engine, Guarded& tensor) {
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", fault);
        is_set.arrive_and_wait();
        Status status = engine.wait(submit_request(engine, sum_of(tensor, 3)));
        EXPECT_FALSE(engine.rank() == 0 && status.ok());
        while (status.ok()) status = engine.wait(submit_request(engine, sum_of(tensor, 3)));
        EXPECT_NE(status.message().find("GPU 0 (GPU-"), std::string::npos) << status.message();
        is_over.arrive_and_wait();
        end_program();
      });
    });
  }
}

// In host memory that is not pinned: a group, and results that the GPU allocates.
TEST(CudaDeathTest, WithoutPinnedMemoryTheBitsAreTheSame) {
  expect_in_own_program([] {
    setenv("FAKE_CUDA_PINNED", "0", 1);
    run_beside_host([](Engine& engine) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_DELAY_SEED", "7");
      Group group(lengths_of(20, 3000));
      Guarded tensor = tensor_of({1, 2, 3});
      for (int n = 1; n <= 3; ++n) {
        const Status status = group.sum(engine);
        EXPECT_TRUE(status.ok()) << status.message();
        group.expect_sums(2, n);
        EXPECT_TRUE(make_calls(engine, tensor, 3));
      }
    });
  });
}

// The driver has copied such memory when it returns: the GPU's thread must not call it before the caller's stream has
// come to the copy. Rank 0 begins with the call whose stream stands still, rank 1 lets it go when the other is done.
TEST(CudaDeathTest, WithoutPinnedMemoryALateStreamDelaysNoOther) {
  expect_in_own_program([] {
    const std::string file = ::testing::TempDir() + "ciranda_begins_" + std::to_string(getpid());
    setenv("FAKE_CUDA_PINNED", "0", 1);
    run_beside_host([&](Engine& engine) {
      const Home late_home = cuda_home(2);
      Guarded early = tensor_of({1, 2, 3});
      const auto sum = [&engine](Guarded& tensor, const char* name) {
        Request r = sum_of(tensor, 3);
        r.name = name;
        return submit_request(engine, std::move(r));
      };
      if (engine.rank() == 1) {
        EXPECT_TRUE(engine.wait(sum(early, "early")).ok());
        Guarded late = tensor_of({4, 5, 6});
        const std::ofstream made(file);
        EXPECT_TRUE(engine.wait(sum(late, "late")).ok());
        return;
      }
      const auto begin_late = [&](Guarded& late) {
        const AtHome at(late_home);
        set_fake("FAKE_CUDA_STILL", "4:2:" + file);
        const auto second = late_home.allocate(late_home.place, 64);
        return sum(late, "late");
      };
      Guarded late = [&] {
        const AtHome at(late_home);
        return tensor_of({4, 5, 6});  // the stream's first operation allocates it
      }();
      const auto of_late = begin_late(late);
      EXPECT_TRUE(engine.wait(sum(early, "early")).ok());
      const AtHome at(late_home);
      EXPECT_TRUE(wait_at_home(engine, of_late).ok());
      const Values expected{8, 10, 12};
      EXPECT_TRUE(late.holds(std::as_bytes(std::span(expected))));
    });
    unlink(file.c_str());
  });
}

// Chunks of 32 KiB: rank 0 has its tensors on the GPU, rank 1 in host memory.
void run_in_chunks(const std::function<void(Engine&)>& body) {
  const Watchdog watchdog("a GPU beside host memory, in chunks");
  const Home gpu = cuda_home(0);
  WorldOptions options = options_for(Layout::kArena, 2);
  options.config.slot_bytes = 4096;
  World world(2, options);
  world.run([&](Engine& engine) {
    const AtHome at(engine.rank() == 0 ? gpu : Home{});
    body(engine);
  });
}
constexpr std::size_t kValuesOfChunk = 4096;

// The first chunk is on its way back before the last one has been copied to the host, where the stream of copies stands
// still.
TEST(CudaDeathTest, ChunksAreCopiedBackWhileOthersAreCopiedToTheHost) {
  expect_in_own_program([] {
    const std::string file = ::testing::TempDir() + "ciranda_last_chunk_" + std::to_string(getpid());
    run_in_chunks([&](Engine& engine) {
      const Values values(3 * kValuesOfChunk, 7);
      Guarded tensor = tensor_of(values);
      if (engine.rank() == 0) set_fake("FAKE_CUDA_STILL", "10:8:" + file);  // the third wait, copy and event of its own
      const auto operation = submit_request(engine, sum_of(tensor, values.size()));
      if (engine.rank() == 0) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        const auto n_puts = [] { return n_fake_calls("cuMemcpyHtoDAsync"); };
        while (n_puts() < 2 && std::chrono::steady_clock::now() < end) EXPECT_FALSE(engine.poll(operation));
        EXPECT_EQ(n_fake_calls("cuMemcpyDtoHAsync"), 3U);
        EXPECT_EQ(n_puts(), 2U) << "the chunks before wait for the last one";
        const std::ofstream made(file);
      }
      EXPECT_TRUE(wait_at_home(engine, operation).ok());
      const Values expected(values.size(), 14);
      EXPECT_TRUE(tensor.holds(std::as_bytes(std::span(expected))));
      EXPECT_TRUE(tensor.is_intact());
    });
    unlink(file.c_str());
  });
}

// Whichever of its copies it is that the driver refuses.
TEST(CudaDeathTest, AChunkWhoseCopyIsRefusedFailsItsCall) {
  for (const char* fault : {"cuMemcpyDtoHAsync:1:1", "cuMemcpyDtoHAsync:3:1", "cuMemcpyHtoDAsync:1:1",
                            "cuMemcpyHtoDAsync:2:1", "cuMemcpyHtoDAsync:3:1"}) {
    SCOPED_TRACE(fault);
    expect_in_own_program([fault] {
      std::latch is_set(2);
      std::latch is_over(2);
      run_in_chunks([&](Engine& engine) {
        Guarded tensor = tensor_of(Values(3 * kValuesOfChunk, 7));
        if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", fault);
        is_set.arrive_and_wait();
        Status status = engine.wait(submit_request(engine, sum_of(tensor, 3 * kValuesOfChunk)));
        EXPECT_FALSE(engine.rank() == 0 && status.ok());
        while (status.ok()) status = engine.wait(submit_request(engine, sum_of(tensor, 3 * kValuesOfChunk)));
        EXPECT_NE(status.message().find("GPU 0 (GPU-"), std::string::npos) << status.message();
        is_over.arrive_and_wait();
        end_program();
      });
    });
  }
}

TEST(CudaDeathTest, LateStreamsChangeNoChunk) {
  expect_in_own_program([] {
    run_in_chunks([](Engine& engine) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_DELAY_SEED", "7");
      std::vector<std::size_t> lengths = lengths_of(40, 1000);
      lengths[20] = 5 * kValuesOfChunk + 1;
      Group group(lengths);
      for (int step = 1; step <= 10; ++step) {
        const Status status = group.sum(engine);
        ASSERT_TRUE(status.ok()) << status.message();
        group.expect_sums(2, step);
      }
    });
  });
}

TEST(CudaDeathTest, AResultForWhichTheGpuHasNoMemoryFailsAlone) {
  expect_in_own_program([] {
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 0) set_fake("FAKE_CUDA_FAIL", "cuMemAllocAsync:1:2");
      const Status status = wait_at_home(engine, submit_request(engine, rows_of(tensor, 3)));
      EXPECT_EQ(status.message(), engine.rank() == 0
                                      ? "there is no memory on GPU 0 (GPU-5f5f5f00) for a result of 48 bytes"
                                      : std::string());
      EXPECT_TRUE(make_calls(engine, tensor, 3));
    });
  });
}

TEST(CudaDeathTest, AGpuThatIsNotThereIsRefused) {
  expect_in_own_program([] {
    run_beside_host([&](Engine& engine, Guarded& tensor) {
      if (engine.rank() == 1) return;
      Request r = sum_of(tensor, 3);
      r.memory.front().place.index = 7;
      const auto operation = submit_request(engine, std::move(r));
      EXPECT_TRUE(operation->is_refused());
      EXPECT_NE(operation->status().message().find("GPU 7"), std::string::npos) << operation->status().message();
    });
  });
}

// --- what the doctor asks

// Each GPU: its name, what is wrong with it, and why it has no kernels.
std::vector<std::string> examined(Homes homes) {
  std::vector<std::string> texts;
  for (const BackendRow& row : backends_of(homes)) {
    if (row.memory != DeviceType::kCuda) continue;
    for (const ExaminedDevice& each : examine_devices(std::span(&row, 1))) {
      texts.push_back(each.name + "|" + each.works.message() + "|" + each.kernels.message());
    }
  }
  return texts;
}

TEST(CudaDeathTest, ADeviceThatIsExaminedSaysWhatItIsGoodFor) {
  expect_in_own_program([] {
    const Watchdog watchdog("an examination");
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    cuda_home(0);  // which loads the driver
    EXPECT_EQ(examined(Homes::kCuda), std::vector<std::string>{"GPU 0 (GPU-5f5f5f00)||"});
    EXPECT_EQ(examined(Homes::kCudaWithoutKernels),
              std::vector<std::string>{"GPU 0 (GPU-5f5f5f00)||this build has no kernels for compute capability 9.0, of "
                                       "GPU 0 (GPU-5f5f5f00)"});
    set_fake("FAKE_CUDA_FAIL", "cuMemAllocAsync:1:2");
    const auto says = [](const char* text) { return examined(Homes::kCuda).front().find(text) != std::string::npos; };
    EXPECT_TRUE(says("|there is no memory on GPU 0 (GPU-5f5f5f00) for"));
    set_fake("FAKE_CUDA_FAIL", "cuEventRecord:2:999");
    EXPECT_TRUE(says("|cuEventRecord on GPU 0 (GPU-5f5f5f00) failed"));
  });
}

// Of all ranks on one GPU, with delays in the GPU's streams: the values, and what the checker sees.
TEST(CudaDeathTest, LateStreamsChangeNothing) {
  expect_in_own_program([] {
    const Watchdog watchdog("late streams");
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    cuda_home(0);  // which loads the driver
    for (const Layout layout : kLayouts) {
      WorldOptions options = options_for(layout, 3);
      options.homes = Homes::kCuda;
      World world(3, options);
      set_fake("FAKE_CUDA_DELAY_SEED", "7");
      world.run([](Engine& engine) {
        for (int step = 0; step < 20; ++step) {
          std::vector<Guarded> tensors;
          std::vector<Engine::OperationPtr> operations;
          for (std::size_t i = 0; i < 5; ++i) tensors.push_back(tensor_of(Values(1 + i * 1000, step + engine.rank())));
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            Request r = sum_of(tensors[i], 1 + i * 1000);
            r.name = std::to_string(i);
            r.is_deferrable = true;
            operations.push_back(submit_request(engine, std::move(r)));
          }
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            ASSERT_TRUE(wait_at_home(engine, operations[i]).ok());
            const Values expected(1 + i * 1000, 3 * step + 3);
            EXPECT_TRUE(tensors[i].holds(std::as_bytes(std::span(expected))));
            EXPECT_TRUE(tensors[i].is_intact());
          }
        }
      });
    }
  });
}

// With tensors of two streams in one call, which are copied apart.
TEST(CudaDeathTest, LateStreamsChangeNoGroup) {
  expect_in_own_program([] {
    const Watchdog watchdog("groups on late streams");
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    cuda_home(0);  // which loads the driver
    WorldOptions options = options_for(Layout::kArena, 2);
    options.homes = Homes::kCuda;
    World world(2, options);
    set_fake("FAKE_CUDA_DELAY_SEED", "7");
    world.run([](Engine& engine) {
      void* const other = cuda_home(engine.rank() + 2).place.queue;
      Group group(lengths_of(50, 2000));
      for (int step = 1; step <= 10; ++step) {
        Request r = group.request();
        for (std::size_t i = 0; i < r.memory.size(); i += 5) r.memory[i].place.queue = other;
        const Status status = wait_at_home(engine, submit_request(engine, std::move(r)));
        ASSERT_TRUE(status.ok()) << status.message();
        group.expect_sums(2, step);
      }
    });
  });
}

}  // namespace
}  // namespace ciranda

#endif  // CIRANDA_SANITIZED
