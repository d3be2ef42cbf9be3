// Operation: a submitted request's handle. It is pending until the engine completes it once, with a status and, for
// collectives that allocate their output, the output.
//
// Threads: the engine's turning thread completes; any number of threads may look, wait, or hold references.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "complete/moments.hpp"
#include "complete/output_memory.hpp"

namespace ciranda {

class Operation {
 public:
  using Callback = std::function<void(const Operation&)>;

  // `callback`, if any, runs on the completing thread, once, after is_done() became true, under no lock of ours.
  explicit Operation(Callback callback = nullptr) : callback_(std::move(callback)) {}

  bool is_done() const { return state_.load(std::memory_order_acquire) == kDone; }

  // REQUIRES: is_done(), but for the engine.
  const Status& status() const { return status_; }
  const std::vector<OutputBuffer>& outputs() const { return outputs_; }
  // The number that some collectives give: the last rank to join, the id of a process set.
  std::int64_t value() const { return value_; }
  // When this rank learned that all are to execute it; the clock's epoch if it never did.
  std::chrono::steady_clock::time_point agreed() const { return agreed_; }

  // Null unless keep_moments() was called. REQUIRES: is_done().
  const Moments* moments() const { return moments_.get(); }

  // Sleeps until done, a signal interrupts the thread, or at_most has passed. Returns is_done().
  bool sleep_until_done(std::optional<std::chrono::nanoseconds> at_most) const;

  // Whether the engine did not even take the request. REQUIRES: is_done().
  bool is_refused() const { return is_refused_; }

  // The engine's side. REQUIRES: not done yet.
  void keep_moments(const Moments& so_far = {}) { moments_ = std::make_unique<Moments>(so_far); }
  void note(Moment moment) {
    if (moments_) moments_->note(moment);
  }
  void set_outputs(std::vector<OutputBuffer> outputs) { outputs_ = std::move(outputs); }
  void set_value(std::int64_t value) { value_ = value; }
  void set_agreed(std::chrono::steady_clock::time_point now) { agreed_ = now; }
  void complete(Status status);
  void refuse(Status status) {
    is_refused_ = true;
    complete(std::move(status));
  }

 private:
  static constexpr std::uint32_t kPending = 0;
  static constexpr std::uint32_t kPendingWithSleeper = 1;
  static constexpr std::uint32_t kDone = 2;

  mutable std::atomic<std::uint32_t> state_{kPending};
  Status status_;
  std::vector<OutputBuffer> outputs_;
  std::int64_t value_ = 0;
  std::chrono::steady_clock::time_point agreed_;
  bool is_refused_ = false;
  std::unique_ptr<Moments> moments_;
  Callback callback_;
};

}  // namespace ciranda
