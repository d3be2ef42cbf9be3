// What the fake driver promises of calls and operations that are made to fail.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"

namespace ciranda::cuda::testing {
namespace {

TEST(FakeCudaFaults, TheKthCallOfAFunctionFails) {
  expect_passes({{"FAKE_CUDA_FAIL", "cuMemAlloc:2:2,cuEventCreate:1:801"}}, [] {
    const Gpu gpu;
    CUdeviceptr memory = gpu.allocate(4);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kOutOfMemory);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kSuccess);
    CUevent event = nullptr;
    EXPECT_EQ(gpu->cuEventCreate(&event, 0), CUresult::kNotSupported);
    EXPECT_EQ(gpu->cuEventCreate(&event, 0), CUresult::kSuccess);
  });
}

// One after the other, until one is behind the last call.
TEST(FakeCudaFaults, TheKthCallOfAnyFunctionFails) {
  expect_passes({}, [] {
    const Gpu gpu;
    const auto run = [&gpu] {
      CUdeviceptr memory = 0;
      CUstream stream = nullptr;
      if (gpu->cuMemAlloc(&memory, 4) != CUresult::kSuccess) return 1;
      if (gpu->cuStreamCreateWithPriority(&stream, 0, 0) != CUresult::kSuccess) return 2;
      if (gpu->cuStreamSynchronize(stream) != CUresult::kSuccess) return 3;
      return 0;
    };
    for (const int k : {1, 2, 3, 4}) {
      set_fake("FAKE_CUDA_FAIL", ("*:" + std::to_string(k) + ":999").c_str());
      EXPECT_EQ(run(), k % 4);
      EXPECT_EQ(n_fake_calls(), k == 4 ? 3U : static_cast<unsigned>(k));
    }
  });
}

TEST(FakeCudaFaults, AnOperationThatFailsEndsItsContext) {
  expect_passes({{"FAKE_CUDA_FAIL_RUN", "cuMemsetD8Async:2:719"}}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    CUdeviceptr memory = gpu.allocate(4);
    gpu.fill(memory, 1, 4, stream);
    gpu.fill(memory, 2, 4, stream);
    EXPECT_EQ(gpu->cuStreamSynchronize(stream), CUresult::kLaunchFailed);
    EXPECT_EQ(gpu->cuMemFree(memory), CUresult::kLaunchFailed);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kLaunchFailed);
  });
}

TEST(FakeCudaFaults, AKernelWithAnIllegalAddressEndsItsContextOnly) {
  expect_passes({{"FAKE_CUDA_DEVICES", "2"}}, [] {
    const Gpu other(1);
    const Gpu gpu(0);
    CUstream stream = gpu.make_stream();
    EXPECT_EQ(gpu.launch("plain_trap", {}, stream), CUresult::kSuccess);
    EXPECT_EQ(gpu->cuStreamSynchronize(stream), CUresult::kIllegalAddress);
    EXPECT_EQ(gpu->cuStreamQuery(stream), CUresult::kIllegalAddress);
    other.enter();
    EXPECT_EQ(gpu->cuStreamSynchronize(other.make_stream()), CUresult::kSuccess);
  });
}

TEST(FakeCudaFaults, ACallThatTellsOfAnEndedContextEndsIt) {
  expect_passes({{"FAKE_CUDA_FAIL", "cuStreamQuery:1:214,cuMemAlloc:1:2"}}, [] {
    const Gpu gpu;
    CUstream stream = gpu.make_stream();
    CUdeviceptr memory = 0;
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kOutOfMemory);  // which does not
    EXPECT_EQ(gpu->cuStreamQuery(stream), CUresult::kEccUncorrectable);
    EXPECT_EQ(gpu->cuMemAlloc(&memory, 4), CUresult::kEccUncorrectable);
  });
}

TEST(FakeCudaFaults, ASettingThatMeansNothingIsRefused) {
  expect_aborts(
      {{"FAKE_CUDA_FAIL", "cuMemAlloc:1"}}, [] { (void)Driver::load(); }, "FAKE_CUDA_FAIL=cuMemAlloc:1");
}

}  // namespace
}  // namespace ciranda::cuda::testing
