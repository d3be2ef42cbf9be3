#include "backend/registry.hpp"

#include <array>

#include "backend/cuda/cuda_device.hpp"
#include "backend/cuda/nccl_backend.hpp"
#include "backend/cuda/peer_backend.hpp"

namespace ciranda {
namespace {

std::unique_ptr<Backend> make_cuda_backend(Mesh& mesh, const Config& config, FindDevice* device) {
  const bool goes_by_nccl = config.gpu_way == "nccl";
  return goes_by_nccl ? cuda::make_nccl_backend(mesh, config, device) : cuda::make_peer_backend(mesh, config, device);
}

constexpr std::array kBackends{
    BackendRow{.memory = DeviceType::kCuda, .name = "cuda", .make = make_cuda_backend, .device = cuda::find_device},
};

}  // namespace

std::span<const BackendRow> all_backends() { return kBackends; }

}  // namespace ciranda
