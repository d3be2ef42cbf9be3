// Captures: the streams whose work is captured into graphs. What such a stream is given is counted, and not done. A
// capture is spoilt by who asks for an event that was recorded in it, or has other streams wait for it; by an event
// from elsewhere for which the stream is to wait; and, if it is a global one, by every thread that allocates, waits or
// asks for anything, unless that thread is relaxed. That of a blocking stream is spoilt by work for the legacy default
// stream, too.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

#include "stream.hpp"
#include "types.hpp"

namespace ciranda::fakes {

class Captures {
 public:
  CUresult begin(const Stream& stream, cuda::CUstreamCaptureMode mode);
  // Of a capture that was spoilt it is an error. `n_given`: what the stream was given.
  CUresult end(const Stream& stream, std::uint64_t& n_given);
  cuda::CUstreamCaptureStatus status(const Stream& stream);

  // Whether the calling thread's call spoils captures of others.
  bool spoils(std::string_view call);
  // Whether it is the legacy default stream, and a stream that it comes after is captured.
  bool hold_up(const Stream& stream);
  // Whether the stream is captured: then it has been given work.
  bool take(const Stream& stream);
  // An event of a captured stream is used elsewhere, or one from elsewhere in it; or it holds up this one.
  void spoil(const Stream& stream);

 private:
  struct Capture {
    cuda::CUstreamCaptureMode mode;
    int device;
    bool is_blocking;
    bool is_spoilt = false;
    std::uint64_t n_given = 0;
  };

  std::mutex mutex_;
  std::map<unsigned, Capture> by_stream_;
};

Captures& captures();
// Of the calling thread.
cuda::CUstreamCaptureMode& capture_mode();

}  // namespace ciranda::fakes
