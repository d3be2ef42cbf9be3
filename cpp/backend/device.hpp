// Device: memory that the host must not touch, and queues of work on it, for all devices of one type. Tensors there are
// staged in host memory (execute/staged.hpp), and so take part in every collective, beside ranks of any other device.
//
// Any thread, at the same time. Nothing waits for the device. It lives as long as the process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/place.hpp"
#include "base/status.hpp"

namespace ciranda {

class Device {
 public:
  virtual ~Device() = default;

  // Called once, on a thread of the device's, when a copy is done; not ok: it failed, and why. Must not wait. Gone
  // afterwards, with what it keeps alive.
  using Done = std::function<void(Status)>;

  // Memory of the device; of at least one byte. Null: there is none. Who lets go of it has put it to no use that its
  // queue has not come to, or leaves it to the deleter to wait for that.
  virtual std::shared_ptr<std::byte> allocate(const Place& place, std::size_t n_bytes) = 0;
  // Host memory that the device copies from and to quickly (pinned), as above.
  virtual std::shared_ptr<std::byte> allocate_on_host(const Place& place, std::size_t n_bytes) = 0;

  // Copies from the device, and to it, in the order of place.queue: after what it was given before, and before what it
  // is given afterwards. The memory on both sides outlives the copy. REQUIRES: n_bytes > 0.
  virtual void fetch(const Place& place, std::byte* to_host, const std::byte* from, std::size_t n_bytes, Done done) = 0;
  virtual void put(const Place& place, std::byte* to, const std::byte* from_host, std::size_t n_bytes, Done done) = 0;
};

}  // namespace ciranda
