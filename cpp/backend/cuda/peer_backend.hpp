// PeerBackend: executes collectives of tensors on GPUs whose ranks share a host, in the GPUs' memory, by our kernels.
// Tensors are packed in slots (PeerMemory), which the other ranks have mapped by CUDA IPC, and reduced in rank order:
// the results have the bits of kernels::reduce. The counters of the lane's arena show how far each rank is.
//
// Called by Backends and DataPlane; made by a row of registry.cc, and by NcclBackend; one thread (the holder of the
// progress lock).
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/device.hpp"
#include "base/config.hpp"
#include "transport/mesh.hpp"

namespace ciranda::cuda {

std::unique_ptr<Backend> make_peer_backend(Mesh& mesh, const Config& config, FindDevice* device);

}  // namespace ciranda::cuda
