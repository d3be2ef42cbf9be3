// NcclBackend: executes collectives of tensors on GPUs by NCCL, where each rank has a GPU of its own, on one host or on
// several. NCCL moves and adds; our kernels pack, scale and divide, and reduce what NCCL does not.
//
// NCCL wants the same order of all its calls on all GPUs, and lanes have none among each other, so their plans take
// turns (agree/turns.hpp). It has a PeerBackend for what two ranks send each other, and for all calls if NCCL cannot be
// used.
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
