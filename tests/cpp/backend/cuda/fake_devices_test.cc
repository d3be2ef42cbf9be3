// What the fake driver promises of devices and contexts.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

std::string name_of(const FakeDriver& driver, CUdevice device) {
  char name[32];
  expect_success(driver.cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  return name;
}

std::string uuid_of(const FakeDriver& driver, CUdevice device) {
  CUuuid uuid{};
  expect_success(driver.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
  return {uuid.bytes.begin(), uuid.bytes.end()};
}

TEST(FakeCudaDevices, AreAsManyAsWanted) {
  expect_passes({{"FAKE_CUDA_DEVICES", "3"}}, [] {
    const FakeDriver& driver = fake_driver();
    int count = 0;
    EXPECT_EQ(driver.cuDeviceGetCount(&count), CUresult::kSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(name_of(driver, 2), "Fake GPU 2");
    CUdevice device = -1;
    EXPECT_EQ(driver.cuDeviceGet(&device, 3), CUresult::kInvalidDevice);
    EXPECT_NE(uuid_of(driver, 0), uuid_of(driver, 1));
    int can = 0;
    EXPECT_EQ(driver.cuDeviceCanAccessPeer(&can, 0, 1), CUresult::kSuccess);
    EXPECT_EQ(can, 1);
  });
}

TEST(FakeCudaDevices, AGpuHasItsUuidUnderEveryNumber) {
  expect_passes({{"FAKE_CUDA_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "2,0,9,1"}}, [] {
    const FakeDriver& driver = fake_driver();
    int count = 0;
    EXPECT_EQ(driver.cuDeviceGetCount(&count), CUresult::kSuccess);
    EXPECT_EQ(count, 2);  // what follows a number that is none is not visible
    EXPECT_EQ(name_of(driver, 0), "Fake GPU 2");
    const std::string uuid = uuid_of(driver, 1);
    set_fake("CUDA_VISIBLE_DEVICES", nullptr);
    EXPECT_EQ(uuid_of(driver, 0), uuid);
  });
}

TEST(FakeCudaDevices, HaveAttributes) {
  expect_passes({}, [] {
    const FakeDriver& driver = fake_driver();
    int major = 0;
    EXPECT_EQ(driver.cuDeviceGetAttribute(&major, CUdevice_attribute::kComputeCapabilityMajor, 0), CUresult::kSuccess);
    EXPECT_EQ(major, 9);
    EXPECT_EQ(driver.cuDeviceGetAttribute(&major, CUdevice_attribute{9999}, 0), CUresult::kInvalidValue);
  });
}

TEST(FakeCudaContexts, CallsFailWithoutACurrentOne) {
  expect_passes({}, [] {
    const Gpu gpu;
    std::jthread([&gpu] {
      CUcontext current = gpu.context();
      EXPECT_EQ(gpu->cuCtxGetCurrent(&current), CUresult::kSuccess);
      EXPECT_EQ(current, nullptr);
      CUdeviceptr memory = 0;
      EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kInvalidContext);
      CUstream stream = nullptr;
      EXPECT_EQ(gpu->cuStreamCreateWithPriority(&stream, 0, 0), CUresult::kInvalidContext);
      gpu.enter();
      EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kSuccess);
    }).join();
    EXPECT_EQ(gpu->cuCtxSetCurrent(nullptr), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuEventCreate(nullptr, 0), CUresult::kInvalidContext);
  });
}

TEST(FakeCudaContexts, ThePrimaryOneEndsWithItsLastUser) {
  expect_passes({}, [] {
    const Gpu gpu;
    CUcontext context = nullptr;
    EXPECT_EQ(gpu->cuDevicePrimaryCtxRetain(&context, 0), CUresult::kSuccess);
    EXPECT_EQ(context, gpu.context());
    EXPECT_EQ(gpu->cuDevicePrimaryCtxRelease(0), CUresult::kSuccess);
    CUdeviceptr memory = gpu.allocate(4);
    EXPECT_EQ(gpu->cuDevicePrimaryCtxRelease(0), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuMemFree(memory), CUresult::kContextIsDestroyed);
    EXPECT_EQ(gpu->cuDevicePrimaryCtxRelease(0), CUresult::kInvalidContext);
    EXPECT_EQ(gpu->cuCtxSetCurrent(reinterpret_cast<CUcontext>(0x50)), CUresult::kInvalidContext);
  });
}

TEST(FakeCudaContexts, LaunchesGoToStreamsOfTheCurrentDevice) {
  expect_passes({{"FAKE_CUDA_DEVICES", "2"}}, [] {
    const Gpu other(1);
    CUstream stream = other.make_stream();
    const Gpu gpu(0);
    EXPECT_EQ(gpu.launch("plain_trap", {}, stream), CUresult::kInvalidHandle);
    CUevent event = gpu.make_event();
    EXPECT_EQ(gpu->cuEventRecord(event, stream), CUresult::kInvalidHandle);
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
