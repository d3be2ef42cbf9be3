// Operation: the handle of a submitted request. It is pending until the engine completes it, once, with a status and
// with outputs that the engine has allocated.
//
// Called by Engine, ProgressThreads, ProgressLoop, RoundsInMemory, InFlight, Staged, Submission, Lane, Lanes,
// shared_memory.cc, Consistency, execute/outputs.hpp and capi/operation.cc; through Session by bindings/python/.
// Threads: the thread that runs the progress loop completes it; any threads may query it, wait, or hold references.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/device_event.hpp"
#include "base/exported.hpp"
#include "base/status.hpp"
#include "call/output_memory.hpp"

namespace ciranda {

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  using Callback = std::function<void(const Operation&)>;

  bool is_done() const { return (state_.load(std::memory_order_acquire) & kDone) != 0; }

  // `callback` runs once, after is_done() became true, as a direct callback (call/callbacks.hpp): on the completing
  // thread, or on this thread if the operation is done already.
  CIRANDA_EXPORTED void when_done(Callback callback);

  // Whether such calls are rare. A wait for one looks early whether all ranks wait for each other.
  bool is_rare() const { return is_rare_; }

  // REQUIRES: is_done(). The engine may call these earlier.
  const Status& status() const { return status_; }
  const std::vector<OutputBuffer>& outputs() const { return outputs_; }
  // The integer result of some collectives: the last rank to join, or the id of a process set.
  std::int64_t value() const { return value_; }

  // For tensors on a device, whose results may still be under way when the operation is done. Work that place.queue is
  // given after order() sees the results; the host may read them only after has_ended(), and only then the device no
  // longer uses the tensors, even if the operation has failed. Neither waits. For tensors in host memory order() does
  // nothing. REQUIRES, for order(): is_done().
  CIRANDA_EXPORTED Status order(const Place& place) const;
  CIRANDA_EXPORTED bool has_ended() const;

  // Sleeps until the operation is done, a signal interrupts the thread, or at_most has passed. Returns is_done().
  bool sleep_until_done(std::optional<std::chrono::nanoseconds> at_most) const;

  // Whether the engine refused the request at submission. REQUIRES: is_done().
  bool is_refused() const { return is_refused_; }

  // For the engine. REQUIRES: not done yet; for set_rare(): no other thread has this operation.
  void set_rare(bool is_rare) { is_rare_ = is_rare; }
  void set_outputs(std::vector<OutputBuffer> outputs) { outputs_ = std::move(outputs); }
  void set_value(std::int64_t value) { value_ = value; }
  void set_events(std::vector<DeviceEventPtr> events) { events_ = std::move(events); }
  void complete(Status status);
  void refuse(Status status) {
    is_refused_ = true;
    complete(std::move(status));
  }

 private:
  // Flags of state_, so that complete() looks for sleepers and callbacks only if there are some.
  static constexpr std::uint32_t kHasSleepers = 1;
  static constexpr std::uint32_t kHasCallbacks = 2;
  static constexpr std::uint32_t kDone = 4;

  void call_back();

  mutable std::atomic<std::uint32_t> state_{0};
  Status status_;
  std::vector<OutputBuffer> outputs_;
  std::vector<DeviceEventPtr> events_;  // pass when the results are there
  std::int64_t value_ = 0;
  bool is_refused_ = false;
  bool is_rare_ = false;
  std::mutex callbacks_mutex_;
  std::vector<Callback> callbacks_;
};

}  // namespace ciranda
