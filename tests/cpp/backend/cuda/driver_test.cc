// The driver is found at run time, once, or refused with what was found and what to do.
#include "backend/cuda/driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

constexpr const char* kNeeded = "Tensors on a GPU need NVIDIA driver 525 (CUDA 12.0) or newer";

// A process with this environment refuses the driver with a message that has all of `parts`, in this order.
void expect_refused(const Environment& environment, const std::vector<std::string>& parts) {
  expect_passes(environment, [&] {
    const Result<const Driver*> driver = Driver::load();
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.status().kind(), ErrorKind::kInvalidArgument);
    std::size_t at = 0;
    for (const std::string& part : parts) {
      const std::size_t found = driver.status().message().find(part, at);
      ASSERT_NE(found, std::string::npos) << part << " is not in: " << driver.status().message();
      at = found + part.size();
    }
  });
}

TEST(CudaDriver, IsNotOpenedBeforeItsFirstUse) {
  expect_passes({}, [] {
    EXPECT_EQ(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
    EXPECT_TRUE(Driver::load().ok());
    EXPECT_NE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
  });
}

TEST(CudaDriver, IsLoadedOnceForAllThreads) {
  expect_passes({}, [] {
    std::vector<const Driver*> found(8);
    {
      std::vector<std::jthread> threads;
      for (const Driver*& each : found) threads.emplace_back([&each] { each = Driver::load().value(); });
    }
    for (const Driver* each : found) EXPECT_EQ(each, found[0]);
    EXPECT_EQ(found[0]->version(), 13000);
    EXPECT_EQ(n_fake_calls(), 2U);  // cuDriverGetVersion, cuInit
  });
}

TEST(CudaDriver, FindsEveryFunctionWithoutCuGetProcAddress) {
  expect_passes({{"LD_LIBRARY_PATH", CIRANDA_FAKE_CUDA_PLAIN}, {"FAKE_CUDA_MISSING", "cuMemAlloc"}}, [] {
    const Gpu gpu;
    ASSERT_EQ(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2"), nullptr);
    CUstream stream = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(4);
    gpu.fill(memory, 7, 4, stream);
    EXPECT_EQ(gpu.read(memory, 4, stream), std::vector<int>({7, 7, 7, 7}));
  });
}

TEST(CudaDriver, ALibraryThatCannotBeLoadedIsSaidToBeNone) {
  expect_refused({{"LD_LIBRARY_PATH", CIRANDA_BROKEN_CUDA}},
                 {"the NVIDIA driver was not found: ", "libcuda.so.1", kNeeded, ": install it"});
}

TEST(CudaDriver, AnOldOneIsRefusedWithItsVersionAndTheOneNeeded) {
  expect_refused({{"FAKE_CUDA_VERSION", "11080"}, {"FAKE_CUDA_MISSING", "cuMemAlloc"}},
                 {"the NVIDIA driver is too old: it supports CUDA 11.8. ", kNeeded, ": update it"});
}

TEST(CudaDriver, TheOldestIsAccepted) {
  expect_passes({{"FAKE_CUDA_VERSION", "12000"}}, [] { EXPECT_EQ(Driver::load().value()->version(), 12000); });
}

TEST(CudaDriver, MissingFunctionsAreNamed) {
  expect_refused({{"FAKE_CUDA_VERSION", "12040"}, {"FAKE_CUDA_MISSING", "cuStreamWaitEvent,cuMemAllocAsync"}},
                 {"the NVIDIA driver for CUDA 12.4 (libcuda.so.1) has no cuMemAllocAsync, cuStreamWaitEvent. ", kNeeded,
                  "install it again", "LD_LIBRARY_PATH"});
}

TEST(CudaDriver, AFailureOfCuInitIsExplained) {
  expect_refused({{"FAKE_CUDA_INIT", "803"}},
                 {"cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803, ", "differ in version", "CUDA 13.0"});
  expect_refused({{"FAKE_CUDA_DEVICES", "0"}}, {"cuInit failed: CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"});
  expect_refused({{"FAKE_CUDA_INIT", "12345"}}, {"cuInit failed: an error unknown to the driver (12345, no text)"});
}

TEST(CudaDriver, AFailureIsAsFinalAsASuccess) {
  expect_passes({{"FAKE_CUDA_INIT", "999"}}, [] {
    const std::string first = Driver::load().status().message();
    set_fake("FAKE_CUDA_INIT", nullptr);
    EXPECT_EQ(Driver::load().status().message(), first);
  });
}

TEST(CudaDriver, FailedCallsAreNamedWithTheirDeviceAndAdvice) {
  expect_passes({}, [] {
    const Driver& driver = *Driver::load().value();
    EXPECT_TRUE(driver.check(CUresult::kSuccess, "cuMemAlloc", "GPU 1").ok());
    const Status failed = driver.check(CUresult::kOutOfMemory, "cuMemAlloc", "GPU 1");
    EXPECT_EQ(failed.kind(), ErrorKind::kInternal);
    EXPECT_EQ(failed.message(),
              "cuMemAlloc on GPU 1 failed: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory): free GPU "
              "memory; nvidia-smi lists the processes that use it");
    EXPECT_EQ(driver.check(CUresult::kInvalidHandle, "cuEventQuery").message(),
              "cuEventQuery failed: CUDA_ERROR_INVALID_HANDLE (400, invalid resource handle)");
  });
}

TEST(CudaDriver, AForkOfAProcessThatUsesItIsToldWhy) {
  expect_passes({}, [] {
    const Gpu gpu;
    const pid_t child = fork();
    if (child == 0) {
      if (gpu->cuInit(0) != CUresult::kNotInitialized) _exit(EXIT_FAILURE);
      int count = 0;
      const Status failed = Driver::load().value()->check(gpu->cuDeviceGetCount(&count), "cuDeviceGetCount");
      _exit(failed.message().find("does not survive a fork") == std::string::npos ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

}  // namespace
}  // namespace ciranda::cuda::testing
