#include "captures.hpp"

#include <algorithm>
#include <array>

namespace ciranda::fakes {

using cuda::CUstreamCaptureMode;
using cuda::CUstreamCaptureStatus;

CUresult Captures::begin(const Stream& stream, CUstreamCaptureMode mode) {
  const std::lock_guard lock(mutex_);
  if (stream.type() == Stream::Type::kLegacy) return CUresult::kIllegalState;
  const Capture begun{mode, stream.device(), stream.type() == Stream::Type::kBlocking};
  return by_stream_.try_emplace(stream.number(), begun).second ? CUresult::kSuccess : CUresult::kIllegalState;
}

CUresult Captures::end(const Stream& stream, std::uint64_t& n_given) {
  const std::lock_guard lock(mutex_);
  const auto found = by_stream_.extract(stream.number());
  if (found.empty()) return CUresult::kIllegalState;
  n_given = found.mapped().n_given;
  return found.mapped().is_spoilt ? CUresult::kStreamCaptureInvalidated : CUresult::kSuccess;
}

CUstreamCaptureStatus Captures::status(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = by_stream_.find(stream.number());
  if (found == by_stream_.end()) return CUstreamCaptureStatus::kNone;
  return found->second.is_spoilt ? CUstreamCaptureStatus::kInvalidated : CUstreamCaptureStatus::kActive;
}

bool Captures::spoils(std::string_view call) {
  static constexpr std::array<std::string_view, 8> kUnsafe{"cuMemAlloc",          "cuMemFree",       "cuMemHostAlloc",
                                                           "cuMemFreeHost",       "cuEventQuery",    "cuStreamQuery",
                                                           "cuStreamSynchronize", "cuCtxSynchronize"};
  if (capture_mode() == CUstreamCaptureMode::kRelaxed || std::ranges::find(kUnsafe, call) == kUnsafe.end())
    return false;
  const std::lock_guard lock(mutex_);
  bool spoils = false;
  for (auto& [number, capture] : by_stream_) {
    if (capture.mode != CUstreamCaptureMode::kGlobal) continue;
    capture.is_spoilt = spoils = true;
  }
  return spoils;
}

bool Captures::hold_up(const Stream& stream) {
  if (stream.type() != Stream::Type::kLegacy) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(by_stream_, [&stream](const auto& each) {
    return each.second.is_blocking && each.second.device == stream.device();
  });
}

bool Captures::take(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = by_stream_.find(stream.number());
  if (found == by_stream_.end()) return false;
  ++found->second.n_given;
  return true;
}

void Captures::spoil(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, capture] : by_stream_) {
    const bool comes_first =
        stream.type() == Stream::Type::kLegacy && capture.is_blocking && capture.device == stream.device();
    if (number == stream.number() || comes_first) capture.is_spoilt = true;
  }
}

Captures& captures() {
  static auto* const kept = new Captures;
  return *kept;
}

CUstreamCaptureMode& capture_mode() {
  static thread_local auto mode = CUstreamCaptureMode::kGlobal;
  return mode;
}

}  // namespace ciranda::fakes
