#include "backend/registry.hpp"

#include <array>

#include "backend/cuda/cuda_device.hpp"

namespace ciranda {
namespace {

constexpr std::array kBackends{
    BackendRow{.memory = DeviceType::kCuda, .name = "cuda", .device = cuda::find_device},
};

}  // namespace

std::span<const BackendRow> all_backends() { return kBackends; }

}  // namespace ciranda
