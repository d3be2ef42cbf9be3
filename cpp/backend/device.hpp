// Device: the memory and the work queues of all devices of one type. The host must not access that memory. Tensors in
// it are staged in host memory (execute/staged.hpp), so they can take part in every collective, whatever devices other
// ranks use.
//
// Copies run in queues of the device's own, beside the callers' queues: a caller's queue goes on while a call is
// executed. Events order them. A copy of one caller's queue does not wait behind those of another, which may wait for
// it in turn.
//
// Called by Staged, PeerBackend, NcclBackend, device_advice() and examine_devices(); implemented by CudaDevice, with
// Gpu and copy_plan.hpp; made by rows of registry.hpp; any thread, concurrently. No method waits for the device. It
// lives as long as the process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/device_event.hpp"
#include "base/place.hpp"
#include "base/status.hpp"

namespace ciranda {

struct DeviceCopy {
  std::byte* to;  // null: memory that put() allocates, at least one byte
  const std::byte* from;
  std::size_t n_bytes;  // > 0, unless put() allocates
  // On the host, behind the range: nobody's, so they may be copied too. With them a copy reaches to the next one, where
  // several can be done at once.
  std::size_t n_bytes_behind = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // How many of its type this process has.
  virtual int n_devices() const { return 1; }
  // Of the device at this place, for messages, as its users know it.
  virtual std::string name(const Place& place) { return device_name(place); }
  // Why the device copies without kernels of ours, with the same results; ok if it has them, or needs none.
  virtual Status kernels(const Place& /*place*/) { return Status::ok_status(); }

  // Allocates host memory that the device copies from and to quickly (pinned), at least one byte. Null: out of memory.
  virtual std::shared_ptr<std::byte> allocate_on_host(const Place& place, std::size_t n_bytes) = 0;

  // The event behind all work that place.queue has been given.
  virtual Result<DeviceEventPtr> record(const Place& place) = 0;

  // These two are called once, on a thread of the device. They must not block. They are destroyed afterwards, with all
  // that they keep alive.
  using Done = std::function<void(Status)>;
  struct Put {
    DeviceEventPtr event;  // behind all copies
    // For each copy without `to`, in order. Its last user's queue must be ordered before place.queue when it is freed.
    // A null: the device is out of memory, and has copied nothing.
    std::vector<std::shared_ptr<std::byte>> allocated = {};
  };
  using Queued = std::function<void(Result<Put>)>;

  // Copy from the device, and to it, after the event, which place.queue has recorded. `queued`: the copies are queued,
  // or why they could not be. `done`, after it: all copies are done, or why one has failed; not called if they were not
  // queued. The memory on both sides must outlive the copies.
  virtual void fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) = 0;
  virtual void put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued,
                   Done done) = 0;
};

// Returns an error if this machine has no such device, or no driver for it; it says what to do.
using FindDevice = Result<Device*>();

}  // namespace ciranda
