// Whether a stream's work is captured into a CUDA graph, and how a call on it is refused. The engine makes no part of a
// graph: what it gave a captured stream would be done at no call, and again at each replay, without the other ranks.
// Called by CudaDevice, Gpu and Event; any thread.
#pragma once

#include "backend/cuda/driver.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

// The legacy default stream is not captured itself, but comes after all blocking streams: while one of these is
// captured, it can be given nothing.
inline bool is_capturing(const Driver& driver, CUstream stream) {
  auto state = CUstreamCaptureStatus::kNone;
  const CUresult asked = driver.cuStreamIsCapturing(stream, &state);
  if (asked == CUresult::kStreamCaptureImplicit) return true;
  return asked == CUresult::kSuccess && state != CUstreamCaptureStatus::kNone;
}

inline Status being_captured() {
  return Status::invalid_argument(
      "its stream is being captured into a CUDA graph, or is the default stream while one that it waits for is, and "
      "collectives cannot be part of a graph: make the call before or after the capture, or wait for it on a stream "
      "that is not captured");
}

}  // namespace ciranda::cuda
