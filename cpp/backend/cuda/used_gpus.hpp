// UsedGpu: what a rank of a host tells the others of the GPU on which it has its tensors. By its UUID they know whether
// they share it, whatever number it has in each process.
//
// Called by PeerSettling; pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.hpp"

namespace ciranda::cuda {

struct UsedGpu {
  CUuuid uuid;
  int n_visible;  // GPUs of its process
  int rank;
};

// Advice where ranks share a GPU though there is one for more of them: most often a program has forgotten to choose.
// Empty on all ranks but one: the last of those that share the GPU. `used`: of all ranks of the host. `own`: this
// rank's place among them. `name`: of its GPU.
std::string advice_on_sharing(const std::vector<UsedGpu>& used, std::size_t own, const std::string& name);

}  // namespace ciranda::cuda
