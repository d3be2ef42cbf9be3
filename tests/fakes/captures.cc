#include "captures.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace ciranda::fakes {

using cuda::CUstreamCaptureMode;
using cuda::CUstreamCaptureStatus;

Captures::Capture* Captures::find(const Stream& stream) {
  const auto found =
      std::ranges::find_if(all_, [&](const auto& each) { return each.second.by_stream.contains(stream.number()); });
  return found == all_.end() ? nullptr : &found->second;
}

CUresult Captures::begin(const Stream& stream, CUstreamCaptureMode mode) {
  const std::lock_guard lock(mutex_);
  if (stream.type() == Stream::Type::kLegacy || find(stream) != nullptr) return CUresult::kIllegalState;
  auto graph = std::make_shared<Graph>();
  const CUgraph handle = graphs().add(graph);
  Capture& begun = all_.emplace(++last_, Capture{mode, stream.number(), handle, std::move(graph), {}}).first->second;
  begun.by_stream.emplace(stream.number(), Part{0, {}, stream.device(), stream.type() == Stream::Type::kBlocking});
  return CUresult::kSuccess;
}

CUresult Captures::end(const Stream& stream, CUgraph& graph) {
  const std::lock_guard lock(mutex_);
  graph = nullptr;
  const auto found = std::ranges::find_if(all_, [&](const auto& each) {
    return each.second.origin == stream.number() && each.second.by_stream.contains(stream.number());
  });
  if (found == all_.end()) return CUresult::kIllegalState;
  const Capture ended = std::move(found->second);
  all_.erase(found);
  const Graph::Nodes& last = ended.by_stream.at(ended.origin).last;
  const bool are_joined = std::ranges::all_of(
      ended.by_stream, [&](const auto& each) { return ended.graph->come_before(each.second.last, last); });
  if (ended.is_spoilt || !are_joined) {
    graphs().remove(ended.handle);
    return ended.is_spoilt ? CUresult::kStreamCaptureInvalidated : CUresult::kStreamCaptureUnjoined;
  }
  graph = ended.handle;
  return CUresult::kSuccess;
}

Captures::Info Captures::info(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, each] : all_) {
    if (!each.by_stream.contains(stream.number())) continue;
    return {each.is_spoilt ? CUstreamCaptureStatus::kInvalidated : CUstreamCaptureStatus::kActive, id, each.handle};
  }
  return {};
}

bool Captures::spoils(std::string_view call) {
  static constexpr std::array<std::string_view, 8> kUnsafe{"cuMemAlloc",          "cuMemFree",       "cuMemHostAlloc",
                                                           "cuMemFreeHost",       "cuEventQuery",    "cuStreamQuery",
                                                           "cuStreamSynchronize", "cuCtxSynchronize"};
  if (capture_mode() == CUstreamCaptureMode::kRelaxed || std::ranges::find(kUnsafe, call) == kUnsafe.end())
    return false;
  const std::lock_guard lock(mutex_);
  bool spoils = false;
  for (auto& [id, capture] : all_) {
    if (capture.mode != CUstreamCaptureMode::kGlobal) continue;
    capture.is_spoilt = spoils = true;
  }
  return spoils;
}

bool Captures::comes_first(const Capture& capture, const Stream& stream) {
  return std::ranges::any_of(capture.by_stream, [&stream](const auto& each) {
    return each.second.is_blocking && each.second.device == stream.device();
  });
}

bool Captures::hold_up(const Stream& stream) {
  if (stream.type() != Stream::Type::kLegacy) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(all_, [&stream](const auto& each) { return comes_first(each.second, stream); });
}

bool Captures::take(const Stream& stream, const Launch& launch) {
  const std::lock_guard lock(mutex_);
  Capture* const capture = find(stream);
  if (capture == nullptr) return false;
  Part& part = capture->by_stream.at(stream.number());
  part.last = {capture->graph->add({launch, part.number, std::move(part.last)})};
  return true;
}

std::optional<Captures::Moment> Captures::now(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, each] : all_) {
    const auto part = each.by_stream.find(stream.number());
    if (part != each.by_stream.end()) return Moment{id, part->second.last};
  }
  return std::nullopt;
}

CUresult Captures::wait(const Stream& stream, const Moment& moment) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(moment.capture);
  Capture* const own = find(stream);
  if (found == all_.end()) return CUresult::kCapturedEvent;  // the capture has ended
  Capture& capture = found->second;
  if (own != nullptr && own != &capture) {
    own->is_spoilt = capture.is_spoilt = true;
    return CUresult::kStreamCaptureMerge;
  }
  if (stream.type() == Stream::Type::kLegacy) {
    capture.is_spoilt = true;
    return CUresult::kStreamCaptureImplicit;
  }
  const Part joined{capture.by_stream.size(), {}, stream.device(), stream.type() == Stream::Type::kBlocking};
  Graph::Nodes& last = capture.by_stream.try_emplace(stream.number(), joined).first->second.last;
  for (const std::size_t each : moment.after) {
    if (std::ranges::find(last, each) == last.end()) last.push_back(each);
  }
  return CUresult::kSuccess;
}

void Captures::spoil(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, capture] : all_) {
    const bool holds_up = stream.type() == Stream::Type::kLegacy && comes_first(capture, stream);
    if (capture.by_stream.contains(stream.number()) || holds_up) capture.is_spoilt = true;
  }
}

void Captures::spoil(const Moment& moment) {
  const std::lock_guard lock(mutex_);
  if (const auto found = all_.find(moment.capture); found != all_.end()) found->second.is_spoilt = true;
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
