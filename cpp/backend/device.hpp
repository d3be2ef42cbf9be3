// Device: the memory and the work queues of all devices of one type. The host must not access that memory. Tensors in
// it are staged in host memory (execute/staged.hpp), so they can take part in every collective, whatever devices other
// ranks use.
//
// Called by Staged; any thread, concurrently. No method waits for the device. The object lives as long as the process.
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

  // Called once, on a thread of the device, when a copy is done; not ok: the reason why the copy failed. Must not
  // block. Destroyed afterwards, with all that it keeps alive.
  using Done = std::function<void(Status)>;

  // Allocates memory of the device, at least one byte. Null: out of memory. Release it only after the queue has
  // finished with it, or let the deleter wait.
  virtual std::shared_ptr<std::byte> allocate(const Place& place, std::size_t n_bytes) = 0;
  // As allocate(), for host memory that the device copies from and to quickly (pinned).
  virtual std::shared_ptr<std::byte> allocate_on_host(const Place& place, std::size_t n_bytes) = 0;

  // Copy from the device, and to it, in the order of place.queue: after all work queued before, and before all work
  // queued later. The memory on both sides must outlive the copy. REQUIRES: n_bytes > 0.
  virtual void fetch(const Place& place, std::byte* to_host, const std::byte* from, std::size_t n_bytes, Done done) = 0;
  virtual void put(const Place& place, std::byte* to, const std::byte* from_host, std::size_t n_bytes, Done done) = 0;
};

}  // namespace ciranda
