#include "backend/registry.hpp"

#include <array>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/peer_backend.hpp"

namespace ciranda {
namespace {

constexpr std::array kBackends{
    BackendRow{
        .memory = DeviceType::kCuda, .name = "cuda", .make = cuda::make_peer_backend, .device = cuda::find_device},
};

}  // namespace

std::span<const BackendRow> all_backends() { return kBackends; }

}  // namespace ciranda
