// DeviceEvent: a point in the work of a device's queue, as CUDA's events are: it has passed once all work that the
// queue had been given before is done. Any thread; nobody waits for the device.
// Used by Device, Events, DeviceWork, Plan and Operation.
#pragma once

#include <memory>

#include "base/place.hpp"
#include "base/status.hpp"

namespace ciranda {

class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // Work that place.queue is given from now on begins after the event. REQUIRES: a place on the event's device.
  virtual Status order(const Place& place) const = 0;
  virtual bool has_passed() const = 0;
};

using DeviceEventPtr = std::shared_ptr<const DeviceEvent>;

}  // namespace ciranda
