// The loading of a GPU's kernels: what is refused, and what a launch copies.
#include "backend/cuda/loaded_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "backend/cuda/fake_gpu.hpp"
#include "backend/cuda/fake_process.hpp"
#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

using testing::expect_passes;
using FakeGpu = testing::Gpu;

int asked_for = 0;  // the last compute capability

std::span<const std::byte> any_image(int compute_capability) {
  static constexpr std::array<std::byte, 1> kImage{};
  asked_for = compute_capability;
  return kImage;
}
std::span<const std::byte> no_image(int /*compute_capability*/) { return {}; }

Result<LoadedKernels> load(const FakeGpu& gpu, Images images) {
  return LoadedKernels::load({*gpu.operator->(), gpu.context(), "GPU 0"}, 0, images);
}

TEST(LoadedKernels, CopyRangesByOneLaunch) {
  expect_passes({}, [] {
    const FakeGpu gpu;
    const Result<LoadedKernels> kernels = load(gpu, any_image);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    EXPECT_EQ(asked_for, 90);
    CUstream stream = gpu.make_stream();
    const CUdeviceptr from = gpu.allocate(100'000);
    const CUdeviceptr to = gpu.allocate(100'000);
    gpu.fill(from, 3, 100'000, stream);
    gpu.fill(to, 5, 100'000, stream);
    auto* const pieces = reinterpret_cast<Piece*>(gpu.allocate_pinned(2 * sizeof(Piece)));
    const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    pieces[0] = {at(from), at(to + 1), 60'000, 0};
    pieces[1] = {at(from), at(to + 60'002), 7, 0};
    const std::uint64_t n_chunks = number_chunks({pieces, 2}, kChunkBytes);
    testing::expect_success(CUresult{kernels.value().copy({pieces, 2, n_chunks}, stream).ok() ? 0 : 1}, "copy");
    const std::vector<int> copied = gpu.read(to, 100'000, stream);
    EXPECT_EQ(std::count(copied.begin(), copied.end(), 3), 60'007);
    EXPECT_EQ(std::count(copied.begin(), copied.begin() + 60'009, 5), 2);
  });
}

TEST(LoadedKernels, TellWhyThereAreNone) {
  expect_passes({{"FAKE_CUDA_FAIL", "cuModuleLoadData:1:209,cuModuleGetFunction:1:500"}}, [] {
    const FakeGpu gpu;
    EXPECT_EQ(load(gpu, no_image).status().message(), "this build has no kernels for compute capability 9.0, of GPU 0");
    for (const char* call : {"cuModuleLoadData on GPU 0 failed", "cuModuleGetFunction on GPU 0 failed"}) {
      EXPECT_NE(load(gpu, any_image).status().message().find(call), std::string::npos);
    }
    EXPECT_TRUE(load(gpu, any_image).ok());
  });
}

}  // namespace
}  // namespace ciranda::cuda
