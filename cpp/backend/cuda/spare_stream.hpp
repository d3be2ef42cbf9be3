// spare_stream: streams of ours that outlive what used them, to be used again: to destroy one waits for its work.
// Called by CapturedGraph and NcclStream; the GPU's thread or, to give one back, any.
#pragma once

#include "backend/cuda/gpu.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

// A stream of the GPU that nobody has; a new one, if there is none. REQUIRES: the GPU's context is the thread's.
Result<CUstream> take_stream(Gpu& gpu);

// REQUIRES: its work ends.
void give_back_stream(const Gpu& gpu, CUstream stream);

}  // namespace ciranda::cuda
