// Context: what a process has on one device: its default streams, the error that ended it if one did, and the lock that
// calls hold, as the driver's do: who is blocked in a call blocks all others of the context.
//
// Threads: any. Contexts live as long as the process; one that was released by all is called destroyed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "stream.hpp"
#include "types.hpp"

namespace ciranda::fakes {

class Context {
 public:
  explicit Context(CUdevice number);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Returns null if the handle is none, or its stream's end has come.
  std::shared_ptr<Stream> find(CUstream handle);
  std::shared_ptr<Stream> make_stream(Stream::Type type);

  // All calls fail from now on with `error`, if it is of the kind that ends a context.
  void end_by(CUresult error);

  const CUdevice device;
  std::mutex calls;
  std::atomic<CUresult> fault{CUresult::kSuccess};
  std::atomic<bool> is_destroyed{false};

 private:
  std::shared_ptr<Stream> of_this_thread();

  DefaultOrder order_;
  std::shared_ptr<Stream> legacy_;
  std::mutex mutex_;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_;
};

// The primary contexts. retain() and release() as cuDevicePrimaryCtx*.
CUcontext retain_primary(CUdevice device);
CUresult release_primary(CUdevice device);

// The one of the calling thread; null: it has none.
CUcontext current_handle();
Context* current_context();
// kInvalidContext: there is no such context.
CUresult set_current(CUcontext handle);
CUcontext handle_of(CUdevice device);

}  // namespace ciranda::fakes
