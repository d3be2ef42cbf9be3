// Memory and streams of GPU 0 for tests, by the driver that the program finds: the fake one.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/driver.hpp"
#include "engine/homes.hpp"

namespace ciranda::testing {
namespace {

using cuda::CUcontext;
using cuda::CUdeviceptr;
using cuda::CUresult;
using cuda::CUstream;
using cuda::Driver;

constexpr int kGpu = 0;
constexpr int kRanks = 8;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

class Gpu {
 public:
  Gpu() {
    const Result<const Driver*> driver = Driver::load();
    if (!driver.ok()) give_up(driver.status().message());
    driver_ = driver.value();
    device_ = made(with_any_image);
    without_kernels_ = made(without_image);
    expect(driver_->cuDevicePrimaryCtxRetain(&context_, kGpu), "cuDevicePrimaryCtxRetain");
    enter();
    for (CUstream& stream : streams_) {
      expect(driver_->cuStreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0), "cuStreamCreateWithPriority");
    }
  }

  Device* device(bool has_kernels) const { return has_kernels ? device_ : without_kernels_; }
  CUstream stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<std::byte> allocate(const Place& place, std::size_t n_bytes) {
    enter();
    CUdeviceptr memory = 0;
    const auto stream = static_cast<CUstream>(place.queue);
    expect(driver_->cuMemAllocAsync(&memory, n_bytes, stream), "cuMemAllocAsync");
    return {reinterpret_cast<std::byte*>(memory), [this, memory, stream](std::byte*) {
              enter();
              expect(driver_->cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
            }};
  }

 private:
  // The fake driver takes any bytes for code, and runs the kernels' twins.
  static std::span<const std::byte> with_any_image(int /*compute_capability*/) {
    static constexpr std::array<std::byte, 1> kImage{};
    return kImage;
  }
  static std::span<const std::byte> without_image(int /*compute_capability*/) { return {}; }

  static Device* made(cuda::Images images) {
    const Result<Device*> device = cuda::make_device(images);
    if (!device.ok()) give_up(device.status().message());
    return device.value();
  }

  void enter() const { expect(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  void expect(CUresult outcome, const char* call) const {
    if (Status status = driver_->check(outcome, call, "GPU 0"); !status.ok()) give_up(status.message());
  }

  const Driver* driver_ = nullptr;
  Device* device_ = nullptr;
  Device* without_kernels_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<CUstream> streams_{kRanks};
};

Gpu& gpu() {
  static Gpu& gpu = *new Gpu;  // as long as the device's thread, which may use its memory
  return gpu;
}

}  // namespace

Result<Device*> cuda_with_kernels() { return gpu().device(true); }
Result<Device*> cuda_without_kernels() { return gpu().device(false); }

Home cuda_home(int rank, bool has_kernels) {
  const auto allocate = [](const Place& place, std::size_t n_bytes) { return gpu().allocate(place, n_bytes); };
  return {gpu().device(has_kernels), {DeviceType::kCuda, kGpu, gpu().stream(rank)}, allocate};
}

}  // namespace ciranda::testing
