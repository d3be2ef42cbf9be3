// What the fake driver promises of memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

constexpr std::size_t kPage = 4096;

TEST(FakeCudaMemory, IsCopiedToAndFromTheDevice) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(4);
    CUdeviceptr other = gpu.allocate(4);
    {
      const std::array<unsigned char, 4> pageable{1, 2, 3, 4};
      EXPECT_EQ(gpu->cuMemcpyHtoDAsync(memory, pageable.data(), 4, stream), CUresult::kSuccess);
    }
    EXPECT_EQ(gpu->cuMemcpyAsync(other, memory, 4, stream), CUresult::kSuccess);
    gpu.launch_add(other + 1, memory + 1, 3, stream);
    gpu.launch_copy(other + 3, memory, 1, stream);
    EXPECT_EQ(gpu.read(other, 4, stream), std::vector<int>({1, 4, 6, 1}));
    EXPECT_EQ(gpu->cuMemFree(memory), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemFree(other), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemFree(0), CUresult::kSuccess);
  });
}

TEST(FakeCudaMemory, BeginsWithRubbish) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    EXPECT_EQ(gpu.read(gpu.allocate(2), 2, stream), std::vector<int>({0xA5, 0xA5}));
  });
}

TEST(FakeCudaMemory, OfTheDeviceIsNotTheHosts) {
  expect_aborts(
      {},
      [] {
        const Gpu gpu;
        auto* const memory = reinterpret_cast<volatile char*>(gpu.allocate(4));
        EXPECT_EQ(*memory, 0);
      },
      "the host touches 0x[0-9a-f]+, device memory \\(cuMemAlloc\\)");
}

TEST(FakeCudaMemory, EndsWhereTheLimitIs) {
  expect_passes({{"FAKE_CUDA_MEMORY", "1048576"}, {"FAKE_CUDA_PINNED", "65536"}}, [] {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 1048577), CUresult::kOutOfMemory);
    const CUdeviceptr half = gpu.allocate(524288);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 600000), CUresult::kOutOfMemory);
    EXPECT_EQ(gpu->cuMemFree(half), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 600000), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostAlloc(&pinned, 65537, 0), CUresult::kOutOfMemory);
    EXPECT_EQ(gpu->cuMemHostAlloc(&pinned, 65536, 0), CUresult::kSuccess);
    std::vector<char> host(16);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data(), host.size(), 0), CUresult::kOutOfMemory);
    EXPECT_EQ(gpu->cuMemFreeHost(pinned), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data(), host.size(), 0), CUresult::kSuccess);
  });
}

TEST(FakeCudaMemory, OfNothingIsRefused) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUdeviceptr memory = 0;
    void* pinned = nullptr;
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 0), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuMemHostAlloc(&pinned, 0, 0), CUresult::kInvalidValue);
    EXPECT_EQ(gpu->cuMemHostRegister(nullptr, 4, 0), CUresult::kInvalidValue);
  });
}

TEST(FakeCudaMemory, IsAllocatedAndFreedInTheOrderOfAStream) {
  expect_passes({{"FAKE_CUDA_MEMORY", "1048576"}}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    for (int i = 0; i < 20; ++i) {
      CUdeviceptr memory = 0;
      ASSERT_EQ(gpu->cuMemAllocAsync(&memory, 1048576, stream), CUresult::kSuccess);
      gpu.fill(memory, i, 1048576, stream);
      ASSERT_EQ(gpu->cuMemFreeAsync(memory, stream), CUresult::kSuccess);
      gpu.synchronize(stream);
    }
  });
}

TEST(FakeCudaMemory, OfTheHostIsPinnedOnce) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    std::vector<unsigned char> host(64);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data(), 64, kMemHostDeviceMap), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data() + 32, 64, 0), CUresult::kHostMemoryAlreadyRegistered);
    CUdeviceptr on_device = 0;
    EXPECT_EQ(gpu->cuMemHostGetDevicePointer(&on_device, host.data(), 0), CUresult::kSuccess);
    gpu.fill(on_device, 9, 64, stream);
    gpu.synchronize(stream);
    EXPECT_EQ(std::count(host.begin(), host.end(), 9), 64);
    EXPECT_EQ(gpu->cuMemHostUnregister(host.data()), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data() + 32, 32, 0), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostUnregister(host.data() + 32), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemHostGetDevicePointer(&on_device, host.data(), 0), CUresult::kInvalidValue);
  });
}

// As what ranks share: two mappings of the same pages, and only one of them is registered.
TEST(FakeCudaMemory, SharedMemoryIsRegisteredWhereItLies) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    void* const shared = mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    auto* const bytes = static_cast<unsigned char*>(shared) + 100;
    ASSERT_EQ(gpu->cuMemHostRegister(bytes, 2 * kPage, 0), CUresult::kSuccess);
    gpu.fill(reinterpret_cast<CUdeviceptr>(bytes), 3, 2 * kPage, stream);
    gpu.synchronize(stream);
    EXPECT_EQ(std::count(bytes, bytes + 2 * kPage, 3), static_cast<std::ptrdiff_t>(2 * kPage));
    EXPECT_EQ(bytes[-1], 0);
    EXPECT_EQ(bytes[2 * kPage], 0);
    EXPECT_EQ(gpu->cuMemHostUnregister(bytes), CUresult::kSuccess);
    std::memset(shared, 1, 3 * kPage);
    munmap(shared, 3 * kPage);
  });
}

TEST(FakeCudaMemory, RegistrationIsRefusedIfWanted) {
  expect_passes({{"FAKE_CUDA_REGISTER", "0"}}, [] {
    const Gpu gpu;
    std::vector<char> host(64);
    EXPECT_EQ(gpu->cuMemHostRegister(host.data(), 64, 0), CUresult::kNotSupported);
  });
}

struct Known {
  CUmemorytype type{};
  int device = -1;
  unsigned can_be_exported = 2;
  CUdeviceptr begin = 1;
  std::size_t n_bytes = 1;
};

Known ask(const Gpu& gpu, CUdeviceptr address) {
  Known known;
  std::array attributes{CUpointer_attribute::kMemoryType, CUpointer_attribute::kDeviceOrdinal,
                        CUpointer_attribute::kIsLegacyIpcCapable, CUpointer_attribute::kRangeStartAddr,
                        CUpointer_attribute::kRangeSize};
  std::array<void*, 5> values{&known.type, &known.device, &known.can_be_exported, &known.begin, &known.n_bytes};
  expect_success(gpu->cuPointerGetAttributes(5, attributes.data(), values.data(), address), "cuPointerGetAttributes");
  return known;
}

TEST(FakeCudaMemory, IsKnownByItsAddress) {
  expect_passes({{"FAKE_CUDA_DEVICES", "2"}}, [] {
    const Gpu gpu(1);
    const CUdeviceptr memory = gpu.allocate(100);
    const Known device = ask(gpu, memory + 99);
    EXPECT_EQ(device.type, CUmemorytype::kDevice);
    EXPECT_EQ(device.device, 1);
    EXPECT_EQ(device.can_be_exported, 1U);
    EXPECT_EQ(device.begin, memory);
    EXPECT_EQ(device.n_bytes, 100U);
    EXPECT_EQ(ask(gpu, memory + 100).type, CUmemorytype::kUnknown);
    EXPECT_EQ(ask(gpu, reinterpret_cast<CUdeviceptr>(gpu.allocate_pinned(4))).type, CUmemorytype::kHost);
    const int on_stack = 0;
    EXPECT_EQ(ask(gpu, reinterpret_cast<CUdeviceptr>(&on_stack)).device, -2);
  });
}

TEST(FakeCudaMemory, IsLargerThan4GiBIfWanted) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    const CUdeviceptr memory = gpu.allocate((std::size_t{5} << 30) + 1);
    const CUdeviceptr last = memory + (std::size_t{5} << 30);
    gpu.fill(last, 6, 1, stream);
    EXPECT_EQ(gpu.read(last, 1, stream), std::vector<int>({6}));
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
