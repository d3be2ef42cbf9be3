// What the fake driver promises of streams and events.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

constexpr std::size_t kMany = std::size_t{1} << 22;

// A stream that does not begin before it is let go.
class Gate {
 public:
  explicit Gate(const Gpu& gpu) : stream_(gpu.make_stream()) { arm(); }
  ~Gate() { std::remove(path().c_str()); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { std::ofstream(path()) << "go"; }
  CUstream stream() const { return stream_; }

 private:
  // The first stream that is made is the second of the context, whose default stream is the first.
  void arm() const { set_fake("FAKE_CUDA_STILL", ("2:1:" + path()).c_str()); }
  static std::string path() { return ::testing::TempDir() + "gate_of_" + std::to_string(getpid()); }

  CUstream stream_;
};

TEST(FakeCudaStreams, RunInTheirOrderAndApart) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "3"}}, [] {
    const Gpu gpu;
    std::vector<CUstream> streams;
    std::vector<CUdeviceptr> memory;
    for (int i = 0; i < 4; ++i) {
      streams.push_back(gpu.make_stream());
      memory.push_back(gpu.allocate(64));
    }
    for (int round = 0; round < 50; ++round) {
      for (std::size_t i = 0; i < 4; ++i) gpu.fill(memory[i], round, 64, streams[i]);
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(gpu.read(memory[i], 1, streams[i]), std::vector<int>({49}));
  });
}

TEST(FakeCudaStreams, StandStillUntilAFileAppears) {
  expect_passes({}, [] {
    const Gpu gpu;
    Gate gate(gpu);
    CUdeviceptr memory = gpu.allocate(1);
    gpu.fill(memory, 1, 1, gate.stream());
    CUevent event = gpu.record(gate.stream());
    EXPECT_EQ(gpu->cuStreamQuery(gate.stream()), CUresult::kNotReady);
    EXPECT_EQ(gpu->cuEventQuery(event), CUresult::kNotReady);
    gate.open();
    gpu.synchronize(gate.stream());
    EXPECT_EQ(gpu->cuStreamQuery(gate.stream()), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuEventQuery(event), CUresult::kSuccess);
  });
}

TEST(FakeCudaStreams, WaitForEventsAsTheyWereRecordedThen) {
  expect_passes({}, [] {
    const Gpu gpu;
    Gate gate(gpu);
    CUstream other = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(1);
    gpu.fill(memory, 5, 1, gate.stream());
    CUevent event = gpu.record(gate.stream());
    EXPECT_EQ(gpu->cuStreamWaitEvent(other, event, 0), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuEventDestroy(event), CUresult::kSuccess);  // the wait goes on
    gpu.launch_add(memory, memory, 1, other);
    EXPECT_EQ(gpu->cuStreamQuery(other), CUresult::kNotReady);
    gate.open();
    EXPECT_EQ(gpu.read(memory, 1, other), std::vector<int>({10}));
  });
}

TEST(FakeCudaStreams, BlockWhoGivesThemMoreThanTheLaunchQueueHolds) {
  expect_passes({}, [] {
    const Gpu gpu;
    Gate gate(gpu);
    CUdeviceptr memory = gpu.allocate(1);
    std::atomic<int> n_given{0};
    std::jthread giver([&] {
      gpu.enter();
      for (int i = 0; i < 20; ++i) {
        gpu.fill(memory, i, 1, gate.stream());
        ++n_given;
      }
    });
    while (n_given < 8) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the ninth cannot be given, however long we wait
    EXPECT_EQ(n_given, 8);
    gate.open();
    giver.join();
    EXPECT_EQ(gpu.read(memory, 1, gate.stream()), std::vector<int>({19}));
  });
}

// Who is blocked in a launch holds the lock of the context.
TEST(FakeCudaStreams, ABlockedLaunchBlocksAllCallsOfTheContext) {
  for (const char* locks : {"1", "0"}) {
    expect_passes({{"FAKE_CUDA_CONTEXT_LOCK", locks}}, [locks] {
      const Gpu gpu;
      Gate gate(gpu);
      CUdeviceptr memory = gpu.allocate(1);
      for (int i = 0; i < 8; ++i) gpu.fill(memory, i, 1, gate.stream());
      const std::uint64_t n_before = n_fake_calls();
      const auto await_calls = [n_before](std::uint64_t n) {
        while (n_fake_calls() < n_before + n) std::this_thread::yield();
      };
      std::jthread giver([&] {
        gpu.enter();
        gpu.fill(memory, 8, 1, gate.stream());
      });
      await_calls(2);  // it has the lock, if there is one
      std::atomic<bool> has_called{false};
      std::jthread caller([&] {
        gpu.enter();
        gpu.make_event();
        has_called = true;
      });
      await_calls(3);
      if (locks == std::string("0")) {
        while (!has_called) std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it cannot go on, however long we wait
        EXPECT_FALSE(has_called);
      }
      gate.open();
      caller.join();
      giver.join();
      gpu.synchronize(gate.stream());
    });
  }
}

TEST(FakeCudaStreams, TheLegacyDefaultStreamIsOrderedWithBlockingOnes) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "5"}}, [] {
    const Gpu gpu;
    CUstream blocking = gpu.make_stream(kStreamDefault);
    auto* const per_thread = reinterpret_cast<CUstream>(kStreamPerThread);
    CUdeviceptr memory = gpu.allocate(kMany);
    for (int round = 0; round < 10; ++round) {
      gpu.fill(memory, round, kMany, blocking);
      gpu.launch_add(memory, memory, kMany, nullptr);
      gpu.launch_add(memory, memory, kMany, per_thread);
      gpu.launch_add(memory, memory, kMany, reinterpret_cast<CUstream>(kStreamLegacy));
    }
    EXPECT_EQ(gpu.read(memory + kMany - 1, 1, blocking), std::vector<int>({72}));
  });
}

TEST(FakeCudaStreams, TheLegacyDefaultStreamHasEndedWithTheBlockingOnes) {
  expect_passes({}, [] {
    const Gpu gpu;
    const std::string path = ::testing::TempDir() + "blocking_" + std::to_string(getpid());
    set_fake("FAKE_CUDA_STILL", ("2:1:" + path).c_str());
    CUstream blocking = gpu.make_stream(kStreamDefault);
    CUdeviceptr memory = gpu.allocate(1);
    gpu.fill(memory, 1, 1, blocking);
    EXPECT_EQ(gpu->cuStreamQuery(nullptr), CUresult::kNotReady);
    std::ofstream(path.c_str()) << "go";
    gpu.synchronize(nullptr);
    EXPECT_EQ(gpu->cuMemFree(memory), CUresult::kSuccess);
    std::remove(path.c_str());
  });
}

TEST(FakeCudaStreams, WriteValuesBehindTheirWork) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "9"}}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    auto* const counter = reinterpret_cast<std::uint32_t*>(gpu.allocate_pinned(sizeof(std::uint32_t)));
    std::byte* const pinned = gpu.allocate_pinned(kMany);
    std::atomic_ref(*counter).store(0);
    for (std::uint32_t round = 1; round <= 20; ++round) {
      gpu.fill(reinterpret_cast<CUdeviceptr>(pinned), static_cast<int>(round), kMany, stream);
      EXPECT_EQ(gpu->cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(counter), round, kWriteValueDefault),
                CUresult::kSuccess);
      while (std::atomic_ref(*counter).load() != round) std::this_thread::yield();
      EXPECT_EQ(pinned[kMany - 1], std::byte(round));  // the host knows without a call
    }
  });
}

TEST(FakeCudaStreams, EndWhenTheyHaveRunWhatTheyWereGiven) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "4"}}, [] {
    const Gpu gpu;
    CUstream kept = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(1);
    for (int i = 0; i < 30; ++i) {
      CUstream stream = gpu.make_stream();
      gpu.fill(memory, i, 1, stream);
      CUevent event = gpu.record(stream);
      EXPECT_EQ(gpu->cuStreamWaitEvent(kept, event, 0), CUresult::kSuccess);
      EXPECT_EQ(gpu->cuStreamDestroy(stream), CUresult::kSuccess);
      EXPECT_EQ(gpu.read(memory, 1, kept), std::vector<int>({i}));
    }
  });
}

// As the work of a GPU: nobody waits for it.
TEST(FakeCudaStreams, DoNotKeepTheProcessFromItsEnd) {
  expect_passes({{"FAKE_CUDA_STILL", "2:1:/no/such/file"}}, [] {
    const Gpu gpu;
    CUstream still = gpu.make_stream();
    CUstream waiting = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(1);
    gpu.fill(memory, 1, 1, still);
    EXPECT_EQ(gpu->cuStreamWaitEvent(waiting, gpu.record(still), 0), CUresult::kSuccess);
    gpu.fill(memory, 1, 1, waiting);
  });
}

TEST(FakeCudaKernels, HaveTheArgumentsOfTheLaunch) {
  expect_passes({}, [] {
    const Gpu gpu;
    Gate gate(gpu);
    CUdeviceptr to = gpu.allocate(1);
    CUdeviceptr from = gpu.allocate(1);
    std::uint64_t n_bytes = 1;
    gpu.fill(from, 4, 1, gate.stream());
    CUdeviceptr to_argument = to;
    EXPECT_EQ(gpu.launch("plain_copy", {&to_argument, &from, &n_bytes}, gate.stream()), CUresult::kSuccess);
    to_argument = 0;
    n_bytes = 100;
    gate.open();
    EXPECT_EQ(gpu.read(to, 1, gate.stream()), std::vector<int>({4}));
  });
}

TEST(FakeCudaKernels, AreFoundByName) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    EXPECT_EQ(gpu.launch("no_such_kernel", {}, stream), CUresult::kNotFound);
    CUmodule module = nullptr;
    EXPECT_EQ(gpu->cuModuleLoadData(&module, nullptr), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuModuleLoadData(&module, "code"), CUresult::kSuccess);
    CUfunction trap = nullptr;
    EXPECT_EQ(gpu->cuModuleGetFunction(&trap, module, "plain_trap"), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuLaunchKernel(trap, 1, 1, 1, 2048, 1, 1, 0, stream, nullptr, nullptr), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuModuleUnload(module), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUresult::kInvalidHandle);
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
