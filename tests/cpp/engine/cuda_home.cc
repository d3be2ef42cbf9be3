// Memory and streams of GPUs for tests, by the driver that the program finds: the fake one.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
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

constexpr int kRanks = 8;

// For ranks of which each has its own; the fake driver reads it when it is loaded.
[[maybe_unused]] const int kHasGpus = setenv("FAKE_CUDA_DEVICES", "4", 0);

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

// The fake driver takes any bytes for code, and runs the kernels' twins.
std::span<const std::byte> with_any_image(int /*compute_capability*/) {
  static constexpr std::array<std::byte, 1> kImage{};
  return kImage;
}
std::span<const std::byte> without_image(int /*compute_capability*/) { return {}; }

Device* made(cuda::Images images) {
  const Result<Device*> device = cuda::make_device(images);
  if (!device.ok()) give_up(device.status().message());
  return device.value();
}

// All GPUs.
Device* device(bool has_kernels) {
  static Device* const with_kernels = made(with_any_image);
  static Device* const without_kernels = made(without_image);
  return has_kernels ? with_kernels : without_kernels;
}

class Gpu {
 public:
  explicit Gpu(int number) : name_("GPU " + std::to_string(number)) {
    const Result<const Driver*> driver = Driver::load();
    if (!driver.ok()) give_up(driver.status().message());
    driver_ = driver.value();
    expect(driver_->cuDevicePrimaryCtxRetain(&context_, number), "cuDevicePrimaryCtxRetain");
    enter();
    for (CUstream& stream : streams_) {
      expect(driver_->cuStreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0), "cuStreamCreateWithPriority");
    }
  }

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
  void enter() const { expect(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  void expect(CUresult outcome, const char* call) const {
    if (Status status = driver_->check(outcome, call, name_); !status.ok()) give_up(status.message());
  }

  const std::string name_;
  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<CUstream> streams_{kRanks};
};

// Each is made at its first use.
Gpu& gpu(int number) {
  static std::mutex mutex;
  static auto& gpus = *new std::map<int, Gpu>;  // as long as the devices' threads, which may use its memory
  const std::lock_guard lock(mutex);
  return gpus.try_emplace(number, number).first->second;
}

}  // namespace

Result<Device*> cuda_with_kernels() { return device(true); }
Result<Device*> cuda_without_kernels() { return device(false); }

Home cuda_home(int rank, bool has_kernels, int number) {
  const auto allocate = [](const Place& place, std::size_t n_bytes) {
    return gpu(place.index).allocate(place, n_bytes);
  };
  return {device(has_kernels), {DeviceType::kCuda, number, gpu(number).stream(rank)}, allocate};
}

}  // namespace ciranda::testing
