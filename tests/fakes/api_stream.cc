// Streams and events.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.hpp"
#include "checker.hpp"
#include "exports.hpp"
#include "streams.hpp"

namespace ciranda::fakes {
namespace {

CUresult refuse(const std::string& what) {
  if (settings()->checks) report(what);
  return CUresult::kInvalidHandle;
}

// Calls function(context, event, where it was recorded).
template <typename Function>
CUresult on_recorded(const char* call, CUevent handle, const Function& function) {
  return in_context(call, [&](Context& context) {
    const auto event = events().find(handle);
    if (event == nullptr) return refuse(std::string(call) + ": no such event, or after its end");
    if (const auto captured = event->captured()) {
      captures().spoil(*captured);
      return CUresult::kCapturedEvent;
    }
    const auto recorded = event->recorded();
    if (recorded) return function(context, *recorded);
    if (settings()->checks) report(std::string(call) + ": an event that was never recorded");
    return CUresult::kSuccess;  // as the driver, to which such an event stands for no work
  });
}

// The error of what has run since the call began is in the context before the points are reached.
CUresult query(const std::vector<Point>& points) {
  if (!std::all_of(points.begin(), points.end(), [](const Point& each) { return each.is_reached(); })) {
    return CUresult::kNotReady;
  }
  for (const Point& each : points) checker().learn(each.clock);
  return current_context()->fault;
}

// Others may call meanwhile.
CUresult wait_for(const std::vector<Point>& points) {
  for (const Point& each : points) {
    each.wait();
    checker().learn(each.clock);
  }
  return current_context()->fault;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return in_context("cuStreamCreateWithPriority", [&](Context& context) {
    if (flags > cuda::kStreamNonBlocking) return CUresult::kInvalidValue;
    const bool is_blocking = flags == cuda::kStreamDefault;
    *stream = streams().add(context.make_stream(is_blocking ? Stream::Type::kBlocking : Stream::Type::kNonBlocking));
    return CUresult::kSuccess;
  });
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return in_context("cuStreamDestroy", [&](Context&) {
    const auto stream = streams().remove(handle);
    if (stream == nullptr) return refuse("cuStreamDestroy: no such stream, or after its end");
    stream->close();
    return CUresult::kSuccess;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  const auto event = events().find(event_handle);
  if (const auto captured = event == nullptr ? std::nullopt : event->captured()) {
    return on_stream("cuStreamWaitEvent", handle,
                     [&](Context&, Stream& stream) { return captures().wait(stream, *captured); });
  }
  return on_recorded("cuStreamWaitEvent", event_handle, [&](Context& context, const Point& recorded) {
    const auto stream = context.find(handle);
    if (stream == nullptr) return refuse("cuStreamWaitEvent: no such stream, or after its end");
    if (captures().now(*stream)) {
      captures().spoil(*stream);
      return CUresult::kStreamCaptureIsolation;
    }
    return stream->enqueue({.call = "cuStreamWaitEvent", .waits = {recorded}});
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return on_stream("cuStreamQuery", handle, [](Context&, Stream& stream) { return query(stream.ends()); });
}

CUresult cuStreamSynchronize(CUstream handle) {
  std::vector<Point> ends;
  const CUresult found = on_stream("cuStreamSynchronize", handle, [&](Context&, Stream& stream) {
    ends = stream.ends();
    return CUresult::kSuccess;
  });
  if (found != CUresult::kSuccess) return found;
  return wait_for(ends);
}

CUresult cuCtxSynchronize() {
  std::vector<Point> ends;
  const CUresult found = in_context("cuCtxSynchronize", [&](Context& context) {
    auto all = streams().all();
    all.push_back(context.find(nullptr));
    for (const auto& stream : all) {
      if (stream->device() != context.device) continue;
      for (Point& each : stream->ends()) ends.push_back(std::move(each));
    }
    return CUresult::kSuccess;
  });
  return found == CUresult::kSuccess ? wait_for(ends) : found;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  return in_context("cuEventCreate", [&](Context& context) {
    *event = events().add(std::make_shared<Event>(context.device));
    return CUresult::kSuccess;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return on_stream("cuEventRecord", stream_handle, [&](Context&, Stream& stream) {
    const auto event = events().find(handle);
    if (event == nullptr) return refuse("cuEventRecord: no such event, or after its end");
    if (event->device() != stream.device()) return CUresult::kInvalidHandle;
    if (auto moment = captures().now(stream)) {
      event->capture(std::move(*moment));
      return CUresult::kSuccess;
    }
    Point recorded;
    const CUresult given = stream.enqueue({.call = "cuEventRecord"}, &recorded);
    if (given == CUresult::kSuccess) event->record(std::move(recorded));
    return given;
  });
}

CUresult cuEventQuery(CUevent event) {
  return on_recorded("cuEventQuery", event, [](Context&, const Point& recorded) { return query({recorded}); });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return in_context("cuEventDestroy", [&](Context&) {
    return events().remove(event) == nullptr ? refuse("cuEventDestroy: no such event, or after its end")
                                             : CUresult::kSuccess;
  });
}

}  // namespace ciranda::fakes
