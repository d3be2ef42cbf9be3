// Homes: where the tensors of each rank of a test lie: in host memory, or on a device. Written against the interface of
// devices: one that is new adds a row here, and is run through the conformance suites.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/nccl_backend.hpp"
#include "backend/cuda/peer_backend.hpp"
#include "backend/registry.hpp"
#include "call/output_memory.hpp"
#include "engine/paged_device.hpp"

namespace ciranda::testing {

struct Home {
  Device* device = nullptr;  // null: host memory
  Place place = {};
  // Memory for tests. It is freed once the queue has done all that it had been given by then.
  std::shared_ptr<std::byte> (*allocate)(const Place& place, std::size_t n_bytes) = nullptr;
};

enum class Homes : std::uint8_t {
  kHost,
  kPaged,  // all ranks on the device, each with a queue of its own
  kMixed,  // every second rank in host memory
  kCuda,   // all ranks on a GPU of the fake driver, each with a stream of its own: by peer where they share memory
  kCudaWithoutKernels,
  kCudaStaged,  // always staged, like the one before, but with kernels
  kCudaMixed,   // every second rank in host memory, beside kCuda
  kCudaNccl,    // each rank on a GPU of its own, by the fake NCCL if CIRANDA_GPU_WAY is nccl
};

// For the conformance suites: all, those with all ranks on a device, and those with a device beside host memory.
inline constexpr std::array kHomes{Homes::kHost, Homes::kPaged, Homes::kMixed};
inline constexpr std::array kHomesOnDevice{Homes::kPaged};
inline constexpr std::array kHomesBesideHost{Homes::kMixed};

inline std::string to_string(Homes homes) {
  constexpr const char* kNames[] = {"Host",       "Paged",     "Mixed",   "Cuda", "CudaWithoutKernels",
                                    "CudaStaged", "CudaMixed", "CudaNccl"};
  return kNames[static_cast<std::size_t>(homes)];
}

// The GPUs of the fake driver, in cuda_home.cc: with kernels, whatever images the build has, and without. Both end the
// program if there is no driver.
Result<Device*> cuda_with_kernels();
Result<Device*> cuda_without_kernels();
// A home on one of them, with a stream for each rank.
Home cuda_home(int rank, bool has_kernels = true, int number = 0);

// The registry of tests: a row for each device on which homes are.
inline std::span<const BackendRow> backends_of(Homes homes) {
  static constexpr BackendRow kPagedRow{
      .memory = PagedDevice::kType, .name = "paged", .device = []() -> Result<Device*> { return &paged_device(); }};
  static constexpr BackendRow kStagedRow{.memory = DeviceType::kCuda, .name = "cuda", .device = cuda_with_kernels};
  static constexpr std::array kRows{
      kPagedRow,
      BackendRow{
          .memory = DeviceType::kCuda, .name = "cuda", .make = cuda::make_peer_backend, .device = cuda_with_kernels}};
  static constexpr BackendRow kNcclRow{
      .memory = DeviceType::kCuda, .name = "cuda", .make = cuda::make_nccl_backend, .device = cuda_with_kernels};
  static constexpr std::array kNcclRows{kPagedRow, kNcclRow};
  static constexpr std::array kStagedRows{kPagedRow, kStagedRow};
  static constexpr std::array kRowsWithoutKernels{BackendRow{
      .memory = DeviceType::kCuda, .name = "cuda", .make = cuda::make_peer_backend, .device = cuda_without_kernels}};
  if (homes == Homes::kCudaWithoutKernels) return kRowsWithoutKernels;
  if (homes == Homes::kCudaStaged) return kStagedRows;
  if (homes == Homes::kCudaNccl) return kNcclRows;
  return kRows;
}

inline Home paged_home(int rank) {
  static PagedDevice& device = paged_device();  // outlives the queues
  static std::vector<PagedQueue> queues(8);
  const auto allocate = [](const Place& place, std::size_t n_bytes) { return device.allocate(place, n_bytes); };
  return {&device, {PagedDevice::kType, 0, &queues[static_cast<std::size_t>(rank)]}, allocate};
}

inline Home home_of(Homes homes, int rank) {
  const bool is_mixed = homes == Homes::kMixed || homes == Homes::kCudaMixed;
  if (homes == Homes::kHost || (is_mixed && rank % 2 == 1)) return Home{};
  if (homes == Homes::kCudaNccl) return cuda_home(rank, true, rank);
  if (homes >= Homes::kCuda) return cuda_home(rank, homes != Homes::kCudaWithoutKernels);
  return paged_home(rank);
}

// That of the rank whose thread this is; see AtHome.
inline Home& home() {
  static thread_local Home home;
  return home;
}

class AtHome {
 public:
  explicit AtHome(const Home& at) : before_(std::exchange(home(), at)) {}
  ~AtHome() { home() = before_; }
  AtHome(const AtHome&) = delete;
  AtHome& operator=(const AtHome&) = delete;

 private:
  Home before_;
};

// From and to the device, behind all that the queue was given before, at once.
template <typename Copy>
void copy_now(const Home& at, Copy copy) {
  std::promise<void> copied;
  copy(at.device->record(at.place).value(), [&copied](const Status&) { copied.set_value(); });
  copied.get_future().wait();
}
inline void read(const Home& at, std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  if (at.device == nullptr) {
    std::memcpy(to.data(), from, to.size());
    return;
  }
  copy_now(at, [&](DeviceEventPtr after, Device::Done done) {
    at.device->fetch(at.place, {{to.data(), from, to.size()}}, std::move(after), std::move(done));
  });
}
inline void write(const Home& at, std::byte* to, std::span<const std::byte> from) {
  copy_now(at, [&](DeviceEventPtr after, Device::Done done) {
    const auto queued = [](const Result<Device::Put>&) {};
    at.device->put(at.place, {{to, from.data(), from.size()}}, std::move(after), queued, std::move(done));
  });
}

// What an operation of this thread's rank has given, wherever that lies.
inline std::vector<std::byte> contents(const OutputBuffer& output) {
  std::vector<std::byte> bytes(output.n_bytes);
  read(output.place.is_host() ? Home{} : home(), bytes, output.data.get());
  return bytes;
}

}  // namespace ciranda::testing
