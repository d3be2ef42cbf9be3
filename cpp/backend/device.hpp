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
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  // The bytes behind the range on the host that belong to no tensor, so that they may be copied too. If they reach to
  // the next copy's range, the device can do both at once.
  std::size_t n_bytes_behind = 0;
  bool is_pinned = true;  // the range on the host
};

// Of a capture that records the work of queues into a graph instead of doing it; 0: none.
using CaptureId = std::uint64_t;

struct HostMemory {
  std::shared_ptr<std::byte> data;  // null: out of memory
  bool is_pinned = true;
};

class Device {
 public:
  virtual ~Device() = default;

  // The number of devices of this type in the process.
  virtual int n_devices() const { return 1; }
  // The name by which users know the device at this place, for messages.
  virtual std::string name(const Place& place) { return device_name(place); }
  // Ok if the device has our kernels, or needs none; else why it has none. It then copies without them, with the same
  // results.
  virtual Status kernels(const Place& /*place*/) { return Status::ok_status(); }

  // The capture that place.queue is in. InvalidArgument: it can be given nothing now; why not.
  virtual Result<CaptureId> capture(const Place& /*place*/) { return CaptureId{0}; }

  // Allocates host memory for copies, at least one byte: pinned, from and to which the device copies quickly, or
  // pageable if there is none.
  virtual HostMemory allocate_on_host(const Place& place, std::size_t n_bytes) = 0;

  // Returns an event that passes when all work that is in place.queue now is done.
  virtual Result<DeviceEventPtr> record(const Place& place) = 0;

  // The same where place.queue is in a capture: a point of the graph, which only work of its capture can come after.
  virtual Result<DeviceEventPtr> record_in_capture(const Place& place) { return record(place); }

  // These two are called once, on a thread of the device. They must not block. They are destroyed afterwards, with all
  // that they keep alive.
  using Done = std::function<void(Status)>;
  struct Put {
    DeviceEventPtr event;  // passes after all copies
    // The memory for each copy without `to`, in order. When it is freed, place.queue must be ordered behind the queue
    // that has used it last. Null: the device is out of memory, and has copied nothing.
    std::vector<std::shared_ptr<std::byte>> allocated = {};
  };
  using Queued = std::function<void(Result<Put>)>;

  // Copy from the device, and to it, after the event, which place.queue has recorded. `queued`: the copies are queued,
  // or why they could not be. `done`, after it: all copies are done, or why one has failed; not called if they were not
  // queued. The memory on both sides must outlive the copies. Those in one direction for the same place.queue are done,
  // and called back for, in the order in which they were given.
  virtual void fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) = 0;
  virtual void put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued,
                   Done done) = 0;

  // Allocates memory of these sizes, behind the event of what `queued` is given. For a call that place.queue has
  // recorded in a capture, by `after`: for as long as the graph, and without an event. Only for devices whose row makes
  // a backend.
  virtual void allocate_results(const Place& /*place*/, std::vector<std::size_t> /*n_bytes*/,
                                const DeviceEventPtr& /*after*/, Queued queued) {
    queued(Status::internal("its results are not allocated by themselves"));
  }

  // Computes the checksums (base/checksum.hpp) of ranges of the device's memory, as they are now: no work that writes
  // to them is under way. `summed` is called as those above. Only for devices whose row makes a backend.
  using Summed = std::function<void(Result<std::vector<std::uint64_t>>)>;
  virtual void checksums(const Place& /*place*/, std::vector<std::span<const std::byte>> /*ranges*/, Summed summed) {
    summed(Status::internal("it computes no checksums"));
  }
};

// Returns an error if this machine has no such device, or no driver for it; it says what to do.
using FindDevice = Result<Device*>();

}  // namespace ciranda
