// NcclBackend: executes allreduces of tensors on GPUs by NCCL, where each rank has a GPU of its own, on one host or on
// several. Our kernels pack, scale and divide; NCCL adds. It is used by one lane only, the world's first: NCCL wants
// the same order of all its calls on all GPUs, and lanes have none among each other.
//
// Called by Backends and DataPlane; made by a row of registry.cc; one thread (the holder of the progress lock).
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/device.hpp"
#include "base/config.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

std::unique_ptr<Backend> make_nccl_backend(Mesh& mesh, const Config& config, FindDevice* device);

}  // namespace ciranda::cuda
