// The fake driver ends a program that uses memory without order, and says what is not ordered with what.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

constexpr std::size_t kBytes = 1 << 16;

CUdeviceptr number_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

std::byte load(std::byte* from) { return *static_cast<volatile std::byte*>(from); }

// Two streams and memory, as all scenarios need them.
struct Scene {
  void wait(CUstream waiting, CUstream awaited) const {
    expect_success(gpu->cuStreamWaitEvent(waiting, gpu.record(awaited), 0), "cuStreamWaitEvent");
  }

  Gpu gpu;
  CUstream one = gpu.make_stream();
  CUstream two = gpu.make_stream();
  CUdeviceptr memory = gpu.allocate(kBytes);
  CUdeviceptr other = gpu.allocate(kBytes);
};

TEST(CudaChecker, AnEventWaitThatIsDropped) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu.record(at.one);
        at.gpu.launch_copy(at.other, at.memory, kBytes, at.two);
      },
      "two uses of memory that nothing orders:\n"
      "  cuMemsetD8Async \\(operation 1 of stream 2, device 0\\) writes it,\n"
      "  cuLaunchKernel of plain_copy \\(operation 1 of stream 3, device 0\\) reads it: bytes 0 to 65536 of 65536 at "
      "0x");
}

TEST(CudaChecker, AnEventWaitThatIsThere) {
  expect_passes({}, [] {
    const Scene at;
    at.gpu.fill(at.memory, 1, kBytes, at.one);
    at.wait(at.two, at.one);
    at.gpu.launch_copy(at.other, at.memory, kBytes, at.two);
    at.wait(at.one, at.two);
    at.gpu.fill(at.memory, 2, kBytes, at.one);
    EXPECT_EQ(at.gpu.read(at.other, 1, at.two), std::vector<int>({1}));
  });
}

// Found however long ago the other stream has ended, as long as nobody has asked it.
TEST(CudaChecker, IsNotMisledByTime) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory, 1, 1, at.one);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        at.gpu.fill(at.memory, 2, 1, at.two);
      },
      "nothing orders");
}

TEST(CudaChecker, AnEventThatWasRecordedTooEarly) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        CUevent event = at.gpu.record(at.one);
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        expect_success(at.gpu->cuStreamWaitEvent(at.two, event, 0), "cuStreamWaitEvent");
        at.gpu.launch_copy(at.other, at.memory, kBytes, at.two);
      },
      "plain_copy \\(operation 2 of stream 3");
}

TEST(CudaChecker, OverwritingWhatAnotherStreamReads) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.wait(at.two, at.one);
        at.gpu.launch_copy(at.other, at.memory, kBytes, at.two);
        at.gpu.fill(at.memory + 10, 2, 1, at.one);
      },
      "plain_copy .* reads it,\n  cuMemsetD8Async .* writes it: bytes 10 to 11 of 65536");
}

TEST(CudaChecker, ReadersAndOtherBytesNeedNoOrder) {
  expect_passes({}, [] {
    const Scene at;
    at.gpu.launch_copy(at.other, at.memory, 10, at.one);
    at.gpu.launch_copy(at.other + 10, at.memory, 10, at.two);
    at.gpu.fill(at.memory + 10, 1, 10, at.two);
  });
}

TEST(CudaChecker, AMissingWaitBeforeFree) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu->cuMemFree(at.memory);
      },
      "cuMemsetD8Async .* writes it,\n  cuMemFree frees it");
  expect_aborts(
      {},
      [] {
        const Scene at;
        std::byte* const pinned = at.gpu.allocate_pinned(kBytes);
        at.gpu->cuMemcpyHtoDAsync(at.memory, pinned, kBytes, at.one);
        at.gpu->cuMemFreeHost(pinned);
      },
      "cuMemcpyHtoDAsync .* reads it,\n  cuMemFreeHost frees it");
  expect_aborts(
      {},
      [] {
        const Scene at;
        std::vector<char> host(64);
        at.gpu->cuMemHostRegister(host.data(), 64, 0);
        at.gpu->cuMemcpyHtoDAsync(at.memory, host.data(), 64, at.one);
        at.gpu->cuMemHostUnregister(host.data());
      },
      "cuMemcpyHtoDAsync .* reads it,\n  cuMemHostUnregister frees it");
}

TEST(CudaChecker, AFreeInTheOrderOfAnotherStream) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        CUdeviceptr memory = 0;
        at.gpu->cuMemAllocAsync(&memory, 64, at.one);
        at.gpu.fill(memory, 1, 64, at.one);
        at.gpu->cuMemFreeAsync(memory, at.two);
      },
      "cuMemsetD8Async .* writes it,\n  cuMemFreeAsync \\(operation 1 of stream 3, device 0\\) writes it");
}

TEST(CudaChecker, UseAfterAFreeInTheOrderOfAStream) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        CUdeviceptr memory = 0;
        at.gpu->cuMemAllocAsync(&memory, 64, at.one);
        at.gpu->cuMemFreeAsync(memory, at.one);
        at.gpu.fill(memory, 1, 64, at.one);
      },
      "cuMemsetD8Async .* writes 64 bytes at .*, after their end by cuMemFreeAsync");
}

TEST(CudaChecker, UseBeforeAnAllocationInTheOrderOfAStream) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        CUdeviceptr memory = 0;
        at.gpu->cuMemAllocAsync(&memory, 64, at.one);
        at.gpu.fill(memory, 1, 64, at.two);
      },
      "cuMemAllocAsync .* writes it");
}

TEST(CudaChecker, AFreeAfterSynchronization) {
  expect_passes({}, [] {
    const Scene at;
    at.gpu.fill(at.memory, 1, kBytes, at.one);
    at.gpu.synchronize(at.one);
    EXPECT_EQ(at.gpu->cuMemFree(at.memory), CUresult::kSuccess);
    at.gpu.fill(at.other, 1, kBytes, at.two);
    CUevent event = at.gpu.record(at.two);
    while (at.gpu->cuEventQuery(event) != CUresult::kSuccess) std::this_thread::yield();
    EXPECT_EQ(at.gpu->cuMemFree(at.other), CUresult::kSuccess);
  });
}

TEST(CudaChecker, UseAfterFree) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu->cuMemFree(at.memory);
        at.gpu.launch_copy(at.other, at.memory, kBytes, at.one);
      },
      "memory that is not there:\n  cuLaunchKernel of plain_copy .* reads 65536 bytes at .*, after their end by "
      "cuMemFree");
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu->cuMemFree(at.memory);
        at.gpu->cuMemFree(at.memory);
      },
      "cuMemFree: no such memory, since it was ended by cuMemFree");
}

TEST(CudaChecker, UseBeyondAnAllocation) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory + 1, 1, kBytes, at.one);
      },
      "writes 65536 bytes at .*, beyond the 65536 bytes at .* of cuMemAlloc");
}

TEST(CudaChecker, HostMemoryInAKernel) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        const char pageable = 1;
        at.gpu.launch_copy(at.memory, number_of(&pageable), 1, at.one);
      },
      "plain_copy .* reads 1 bytes at .*, where nothing is allocated");
}

TEST(CudaChecker, AnEventBeforeItsRecordAndAfterItsEnd) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu->cuStreamWaitEvent(at.one, at.gpu.make_event(), 0);
      },
      "cuStreamWaitEvent: an event that was never recorded");
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu->cuEventQuery(at.gpu.make_event());
      },
      "cuEventQuery: an event that was never recorded");
  expect_aborts(
      {},
      [] {
        const Scene at;
        CUevent event = at.gpu.record(at.one);
        at.gpu->cuEventDestroy(event);
        at.gpu->cuEventQuery(event);
      },
      "cuEventQuery: no such event, or after its end");
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu->cuStreamDestroy(at.one);
        at.gpu.fill(at.memory, 1, 1, at.one);
      },
      "cuMemsetD8Async: no such stream, or after its end");
}

TEST(CudaChecker, HostReadsBeforeSynchronization) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        std::byte* const pinned = at.gpu.allocate_pinned(kBytes);
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu->cuMemcpyDtoHAsync(pinned, at.memory, kBytes, at.one);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it is over, but nobody has asked
        EXPECT_EQ(load(pinned), std::byte{1});
      },
      "the host touches 0x.*, pinned memory \\(cuMemHostAlloc\\), before it knows of the end of\n"
      "  cuMemcpyDtoHAsync \\(operation 2 of stream 2");
}

TEST(CudaChecker, HostReadsSharedMemoryBeforeSynchronization) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        void* const shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        at.gpu->cuMemHostRegister(shared, kBytes, kMemHostPortable);
        at.gpu->cuMemcpyDtoHAsync(shared, at.memory, kBytes, at.one);
        load(static_cast<std::byte*>(shared));
      },
      "the host touches 0x.*, pinned memory \\(cuMemHostRegister\\), before");
}

TEST(CudaChecker, HostWritesWhatAStreamStillReads) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        std::byte* const pinned = at.gpu.allocate_pinned(kBytes);
        at.gpu->cuMemcpyHtoDAsync(at.memory, pinned, kBytes, at.one);
        EXPECT_NE(load(pinned), std::byte{1});  // reading is right
        *static_cast<volatile std::byte*>(pinned) = std::byte{1};
      },
      "the host touches 0x.*, pinned memory .* before it knows of the end of\n  cuMemcpyHtoDAsync");
}

TEST(CudaChecker, HostUseAfterSynchronization) {
  expect_passes({}, [] {
    const Scene at;
    std::byte* const pinned = at.gpu.allocate_pinned(kBytes);
    for (int round = 1; round < 4; ++round) {
      at.gpu.fill(at.memory, round, kBytes, at.one);
      at.gpu->cuMemcpyDtoHAsync(pinned, at.memory, kBytes, at.one);
      at.wait(at.two, at.one);
      at.gpu->cuMemcpyHtoDAsync(at.other, pinned, kBytes, at.two);
      at.gpu.synchronize(at.two);
      EXPECT_EQ(pinned[kBytes - 1], std::byte(round));
      pinned[0] = std::byte{9};
    }
  });
}

// Another rank's stream waits for no event: its thread has read the value.
TEST(CudaChecker, AValueThatTheHostHasReadOrders) {
  expect_passes({{"FAKE_CUDA_DELAY_SEED", "2"}}, [] {
    const Scene at;
    auto* const counter = reinterpret_cast<std::uint32_t*>(at.gpu.allocate_pinned(4));
    for (std::uint32_t round = 1; round < 20; ++round) {
      CUstream from = round % 2 == 0 ? at.one : at.two;
      at.gpu.fill(at.memory, 1, kBytes, from);
      at.gpu->cuStreamWriteValue32(from, number_of(counter), round, kWriteValueDefault);
      while (std::atomic_ref(*counter).load() != round) std::this_thread::yield();
    }
  });
}

TEST(CudaChecker, AValueThatIsNotThereDoesNot) {
  expect_aborts(
      {{"FAKE_CUDA_STILL", "2:1:/no/such/file"}},
      [] {
        const Scene at;
        std::byte* const counter = at.gpu.allocate_pinned(4);
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu->cuStreamWriteValue32(at.one, number_of(counter), 1, kWriteValueDefault);
        at.gpu.fill(at.memory, 1, kBytes, at.two);
      },
      "nothing orders");
}

TEST(CudaChecker, ThreadsMayTellEachOtherUnlessTheyAreApart) {
  const auto scenario = [] {
    const Scene at;
    at.gpu.fill(at.memory, 1, kBytes, at.one);
    std::jthread([&at] {
      at.gpu.enter();
      at.gpu.synchronize(at.one);
    }).join();
    EXPECT_EQ(at.gpu->cuMemFree(at.memory), CUresult::kSuccess);
  };
  expect_passes({}, scenario);
  expect_aborts({{"FAKE_CUDA_THREADS_APART", "1"}}, scenario, "cuMemFree frees it");
}

TEST(CudaChecker, TheDefaultStreamIsNotOrderedWithNonBlockingOnes) {
  expect_aborts(
      {},
      [] {
        const Scene at;
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu.fill(at.memory, 1, kBytes, nullptr);
      },
      "operation 1 of stream 1, device 0");
}

TEST(CudaChecker, TwoDevices) {
  expect_aborts(
      {{"FAKE_CUDA_DEVICES", "2"}},
      [] {
        const Scene at;
        const Gpu other(1);
        CUstream stream = other.make_stream();
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        other->cuMemcpyAsync(other.allocate(kBytes), at.memory, kBytes, stream);
      },
      "stream 2, device 0\\) writes it,\n  cuMemcpyAsync \\(operation 1 of stream 5, device 1\\) reads it");
}

TEST(CudaChecker, BothAddressesOfMemoryThatAProcessHasTwice) {
  expect_aborts(
      {{"FAKE_CUDA_IPC", "within"}},
      [] {
        const Scene at;
        CUipcMemHandle handle{};
        CUdeviceptr same = 0;
        at.gpu->cuIpcGetMemHandle(&handle, at.memory);
        at.gpu->cuIpcOpenMemHandle(&same, handle, kIpcLazyPeerAccess);
        at.gpu.fill(at.memory, 1, kBytes, at.one);
        at.gpu.fill(same, 1, kBytes, at.two);
      },
      "nothing orders");
}

TEST(CudaChecker, CanBeTurnedOff) {
  expect_passes({{"FAKE_CUDA_CHECK", "0"}}, [] {
    const Scene at;
    EXPECT_EQ(at.gpu->cuEventQuery(at.gpu.make_event()), CUresult::kSuccess);
    EXPECT_EQ(at.gpu->cuMemsetD8Async(at.memory + 1, 1, kBytes, at.one), CUresult::kIllegalAddress);
    EXPECT_EQ(at.gpu->cuMemFree(at.memory + 1), CUresult::kInvalidValue);
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
