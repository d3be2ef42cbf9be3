// Whether a stream's work is captured into a CUDA graph, and how a call on it is refused that cannot be part of one.
// Called by Gpu, Event and take_stream(); any thread.
#pragma once

#include <cstdint>

#include "backend/cuda/driver.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

inline Status being_captured() {
  return Status::invalid_argument(
      "its stream is being captured into a CUDA graph, or is the default stream while one that it waits for is: make "
      "the call before or after the capture, or wait for it on a stream that is not captured");
}

// The driver's number of the capture; 0: the stream is in none. The legacy default stream is not captured itself, but
// comes after all blocking streams: while one of these is captured, it can be given nothing, and this fails.
inline Result<std::uint64_t> capture_of(const Driver& driver, CUstream stream) {
  auto state = CUstreamCaptureStatus::kNone;
  std::uint64_t id = 0;
  const CUresult asked = driver.cuStreamGetCaptureInfo(stream, &state, &id, nullptr, nullptr, nullptr);
  if (asked == CUresult::kStreamCaptureImplicit) return being_captured();
  if (asked != CUresult::kSuccess || state == CUstreamCaptureStatus::kNone) return std::uint64_t{0};
  return state == CUstreamCaptureStatus::kActive ? Result<std::uint64_t>(id) : being_captured();
}

inline bool is_capturing(const Driver& driver, CUstream stream) {
  const Result<std::uint64_t> capture = capture_of(driver, stream);
  return !capture.ok() || capture.value() != 0;
}

}  // namespace ciranda::cuda
