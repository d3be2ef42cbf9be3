// What the fake driver promises of memory that several processes use.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"
#include "base/unique_fd.hpp"

namespace ciranda::cuda::testing {
namespace {

// One end of a connection between a process and its child.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    reader_.reset(ends[0]);
    writer_.reset(ends[1]);
  }

  template <typename Value>
  void write(const Value& value) const {
    EXPECT_EQ(::write(writer_.get(), &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <typename Value>
  Value read() const {
    Value value{};
    EXPECT_EQ(::read(reader_.get(), &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }

 private:
  UniqueFd reader_;
  UniqueFd writer_;
};

// Runs `function` in a process that was forked before anything used the driver.
class Child {
 public:
  explicit Child(const std::function<void()>& function) : pid_(fork()) {
    if (pid_ != 0) return;
    function();
    _exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
  }

  void kill() const { EXPECT_EQ(::kill(pid_, SIGKILL), 0); }
  int wait() const {
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  pid_t pid_;
};

CUipcMemHandle handle_of(const Gpu& gpu, CUdeviceptr memory) {
  CUipcMemHandle handle{};
  expect_success(gpu->cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
  return handle;
}

CUdeviceptr open(const Gpu& gpu, const CUipcMemHandle& handle) {
  CUdeviceptr memory = 0;
  expect_success(gpu->cuIpcOpenMemHandle(&memory, handle, kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
  return memory;
}

TEST(FakeCudaIpc, ProcessesUseTheSameMemory) {
  expect_passes({}, [] {
    const Pipe there;
    const Pipe back;
    const Child child([&] {
      const Gpu gpu;
      CUstream stream = gpu.make_stream();
      const CUdeviceptr memory = open(gpu, there.read<CUipcMemHandle>());
      gpu.launch_add(memory, memory, 5000, stream);
      gpu.synchronize(stream);
      EXPECT_EQ(gpu->cuIpcCloseMemHandle(memory), CUresult::kSuccess);
      back.write(1);
    });
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    gpu.allocate(100);
    const CUdeviceptr memory = gpu.allocate(5000);
    gpu.fill(memory, 21, 5000, stream);
    gpu.synchronize(stream);
    there.write(handle_of(gpu, memory + 4));  // which stands for the whole allocation
    EXPECT_EQ(back.read<int>(), 1);
    EXPECT_EQ(gpu.read(memory + 4999, 1, stream), std::vector<int>({42}));
    EXPECT_EQ(child.wait(), 0);
  });
}

TEST(FakeCudaIpc, MemoryOfAKilledProcessStaysWithThoseWhoHaveIt) {
  expect_passes({}, [] {
    const Pipe there;
    const Pipe back;
    const Child child([&] {
      const Gpu gpu;
      CUstream stream = gpu.make_stream();
      const CUdeviceptr memory = gpu.allocate(64);
      gpu.fill(memory, 8, 64, stream);
      gpu.synchronize(stream);
      there.write(handle_of(gpu, memory));
      pause();
    });
    const Gpu gpu;
    const auto handle = there.read<CUipcMemHandle>();
    const CUdeviceptr memory = open(gpu, handle);
    child.kill();
    child.wait();
    EXPECT_EQ(gpu.read(memory, 1, gpu.make_stream()), std::vector<int>({8}));
    EXPECT_EQ(open(gpu, handle), memory);  // once more
    EXPECT_EQ(gpu->cuIpcCloseMemHandle(memory), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuIpcCloseMemHandle(memory), CUresult::kSuccess);
    CUdeviceptr again = 0;
    EXPECT_EQ(gpu->cuIpcOpenMemHandle(&again, handle, kIpcLazyPeerAccess), CUresult::kMapFailed);
  });
}

TEST(FakeCudaIpc, OnlyWhatCuMemAllocAllocatedIsExported) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    CUipcMemHandle handle{};
    CUdeviceptr memory = 0;
    EXPECT_EQ(gpu->cuMemAllocAsync(&memory, 64, stream), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuIpcGetMemHandle(&handle, memory), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(gpu.allocate_pinned(4))),
              CUresult::kInvalidValue);
  });
}

TEST(FakeCudaIpc, AProcessOpensItsOwnMemoryOnlyIfWanted) {
  expect_passes({}, [] {
    const Gpu gpu;
    const CUdeviceptr memory = gpu.allocate(64);
    const CUipcMemHandle handle = handle_of(gpu, memory);
    CUdeviceptr same = 0;
    EXPECT_EQ(gpu->cuIpcOpenMemHandle(&same, handle, 0), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuIpcOpenMemHandle(&same, handle, kIpcLazyPeerAccess), CUresult::kInvalidContext);
    set_fake("FAKE_CUDA_IPC", "within");
    same = open(gpu, handle);
    EXPECT_NE(same, memory);
    CUstream stream = gpu.make_stream();
    gpu.fill(memory, 3, 64, stream);
    EXPECT_EQ(gpu.read(same, 1, stream), std::vector<int>({3}));
    EXPECT_EQ(gpu->cuIpcCloseMemHandle(same), CUresult::kSuccess);
  });
}

TEST(FakeCudaIpc, IsRefusedIfWanted) {
  expect_passes({{"FAKE_CUDA_IPC", "no_export"}}, [] {
    const Gpu gpu;
    CUipcMemHandle handle{};
    EXPECT_EQ(gpu->cuIpcGetMemHandle(&handle, gpu.allocate(4)), CUresult::kNotSupported);
    set_fake("FAKE_CUDA_IPC", "no_import");
    handle = handle_of(gpu, gpu.allocate(4));
    CUdeviceptr memory = 0;
    EXPECT_EQ(gpu->cuIpcOpenMemHandle(&memory, handle, kIpcLazyPeerAccess), CUresult::kMapFailed);
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
