// Memory and streams of GPU 0 for tests, by the driver that the program finds: the fake one.
#include <cstdio>
#include <cstdlib>
#include <memory>
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
    const Result<Device*> device = cuda::find_device();
    if (!device.ok()) give_up(device.status().message());
    device_ = device.value();
    expect(driver_->cuDevicePrimaryCtxRetain(&context_, kGpu), "cuDevicePrimaryCtxRetain");
    enter();
    for (CUstream& stream : streams_) {
      expect(driver_->cuStreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0), "cuStreamCreateWithPriority");
    }
  }

  Device* device() const { return device_; }
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
    if (Status status = driver_->check(outcome, call, kGpu); !status.ok()) give_up(status.message());
  }

  const Driver* driver_ = nullptr;
  Device* device_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<CUstream> streams_{kRanks};
};

Gpu& gpu() {
  static Gpu& gpu = *new Gpu;  // as long as the device's thread, which may use its memory
  return gpu;
}

}  // namespace

Home cuda_home(int rank) {
  const auto allocate = [](const Place& place, std::size_t n_bytes) { return gpu().allocate(place, n_bytes); };
  return {gpu().device(), {DeviceType::kCuda, kGpu, gpu().stream(rank)}, allocate};
}

}  // namespace ciranda::testing
