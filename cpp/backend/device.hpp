// Device: the memory and the work queues of all devices of one type. The host must not access that memory. Tensors in
// it are staged in host memory (execute/staged.hpp), so they can take part in every collective, whatever devices other
// ranks use.
//
<<<<<<< HEAD
// Copies run in queues of the device's own, beside the callers' queues: a caller's queue goes on while a call is
// executed. Events order them. A copy of one caller's queue does not wait behind those of another, which may wait for
// it in turn.
//
// Threads: any, concurrently. No method waits for the device. The object lives as long as the process.
=======
// Called by Staged; any thread, concurrently. No method waits for the device. The object lives as long as the process.
>>>>>>> h/who
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/device_event.hpp"
#include "base/place.hpp"
#include "base/status.hpp"

namespace ciranda {

struct DeviceCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t n_bytes;  // > 0
};

class Device {
 public:
  virtual ~Device() = default;

  // Allocates memory of the device, at least one byte. Null: out of memory. Release it only after its users' queues
  // have finished with it, or let the deleter wait.
  virtual std::shared_ptr<std::byte> allocate(const Place& place, std::size_t n_bytes) = 0;
  // As allocate(), for host memory that the device copies from and to quickly (pinned).
  virtual std::shared_ptr<std::byte> allocate_on_host(const Place& place, std::size_t n_bytes) = 0;

  // The event behind all work that place.queue has been given.
  virtual Result<DeviceEventPtr> record(const Place& place) = 0;

  // Called once, on a thread of the device. Must not block. Destroyed afterwards, with all that it keeps alive.
  using Done = std::function<void(Status)>;
  using Queued = std::function<void(Result<DeviceEventPtr>)>;

  // Copy from the device, and to it, after the event, which place.queue has recorded. `done`: all copies are done, or
  // one has failed for this reason. `queued`, before it: the event behind all copies, or why they could not be queued;
  // in the latter case `done` is not called. The memory on both sides must outlive the copies.
  virtual void fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) = 0;
  virtual void put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued,
                   Done done) = 0;
};

}  // namespace ciranda
