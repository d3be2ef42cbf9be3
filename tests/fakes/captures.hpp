// Captures: the streams whose work is captured into graphs. What such a stream is given becomes a node of its capture's
// graph, and is not done. A stream that waits for an event of a capture joins it, until the capture ends; it must be
// waited for by then. A capture is spoilt by who asks for an event that was recorded in it; by an event from elsewhere
// for which one of its streams is to wait; and, if it is a global one, by every thread that allocates, waits or asks
// for anything, unless that thread is relaxed. That of a blocking stream is spoilt by work for the legacy default
// stream, too.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "graph.hpp"
#include "stream.hpp"
#include "types.hpp"

namespace ciranda::fakes {

class Captures {
 public:
  // A moment in a capture.
  struct Moment {
    std::uint64_t capture;
    Graph::Nodes after;
  };
  struct Info {
    cuda::CUstreamCaptureStatus status = cuda::CUstreamCaptureStatus::kNone;
    std::uint64_t id = 0;  // of a capture, unique in the process
    CUgraph graph = nullptr;
  };

  CUresult begin(const Stream& stream, cuda::CUstreamCaptureMode mode);
  // Of a capture that was spoilt it is an error, and the graph is null.
  CUresult end(const Stream& stream, CUgraph& graph);
  Info info(const Stream& stream);

  // Whether the calling thread's call spoils captures of others.
  bool spoils(std::string_view call);
  // Whether it is the legacy default stream, and a stream that it comes after is captured.
  bool hold_up(const Stream& stream);
  // Whether the stream is captured: then it has been given this.
  bool take(const Stream& stream, const Launch& launch);
  // Now, in a stream that is captured.
  std::optional<Moment> now(const Stream& stream);
  // The stream waits for what was captured elsewhere.
  CUresult wait(const Stream& stream, const Moment& moment);
  // An event from elsewhere is used in the stream; or it holds up this one.
  void spoil(const Stream& stream);
  void spoil(const Moment& moment);

 private:
  struct Part {
    std::size_t number;  // of the stream, in the capture
    Graph::Nodes last;   // what it is given next comes after these
    int device;
    bool is_blocking;
  };
  struct Capture {
    cuda::CUstreamCaptureMode mode;
    unsigned origin;
    CUgraph handle;
    std::shared_ptr<Graph> graph;
    std::map<unsigned, Part> by_stream;
    bool is_spoilt = false;
  };

  Capture* find(const Stream& stream);
  static bool comes_first(const Capture& capture, const Stream& stream);

  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Capture> all_;
};

Captures& captures();
// Of the calling thread.
cuda::CUstreamCaptureMode& capture_mode();

}  // namespace ciranda::fakes
