// Recorder: records the calls of one rank while at least one Recording exists, and for one that wants them the arrivals
// of other ranks at calls. Otherwise it only costs the load of a word that no thread writes.
//
// Called by InFlight, RoundsInMemory and LaneLog, which write, Lane and RoundsByMessages, on one thread (the holder of
// the progress lock); by Engine, which owns it in WorldParts, RecordedSteps and Recording, on any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "observe/record_ring.hpp"
#include "observe/stages.hpp"

namespace ciranda {

class Recorder {
 public:
  // 2 MiB, allocated by the first start(), unless more are wanted before.
  static constexpr std::size_t kMostRecords = 8192;
  // For RecordedSteps, which must lose none: 32 MiB, a quarter of a second at 500,000 calls a second. The thread that
  // reads may have to wait for a core as long.
  static constexpr std::size_t kMostRecordedSteps = 1U << 17U;

  explicit Recorder(std::size_t most_records = kMostRecords) : most_records_(most_records) {}

  // The ring is to hold so many records. Does nothing once there is one: who reads it goes on.
  void want(std::size_t most_records) {
    const std::lock_guard lock(mutex_);
    if (!memory_) most_records_ = std::max(most_records_, most_records);
  }

  bool is_on() const { return ring_.load(std::memory_order_relaxed) != nullptr; }

  // Does nothing while the recorder is off.
  void write(const RecordedCall& call, const Stages& stages) {
    if (RecordRing* ring = ring_.load(std::memory_order_acquire)) ring->write(call, stages);
  }

  bool wants_arrivals() const { return n_for_arrivals_.load(std::memory_order_relaxed) != 0; }
  // A rank has made this call, as its coordinator, here, has learned now, in ticks. Does nothing if nobody wants that.
  void write_arrival(std::string_view name, Collective collective, int rank, std::uint64_t now) {
    if (!wants_arrivals()) return;
    Stages stages;
    stages.note(Stage::kReady, now);
    write({.name = name, .collective = collective, .arrived = rank}, stages);
  }

  // Each start() needs one stop(), with the same argument. The ring lives as long as the recorder.
  const RecordRing& start(bool wants_arrivals = false) {
    const std::lock_guard lock(mutex_);
    if (!memory_) memory_ = std::make_unique<RecordRing>(most_records_);
    ++n_started_;
    if (wants_arrivals) n_for_arrivals_.fetch_add(1, std::memory_order_relaxed);
    ring_.store(memory_.get(), std::memory_order_release);
    return *memory_;
  }
  void stop(bool wants_arrivals = false) {
    const std::lock_guard lock(mutex_);
    if (wants_arrivals) n_for_arrivals_.fetch_sub(1, std::memory_order_relaxed);
    if (--n_started_ == 0) ring_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  std::size_t most_records_;                // guarded by mutex_
  std::atomic<RecordRing*> ring_{nullptr};  // null while the recorder is off
  std::atomic<int> n_for_arrivals_{0};
  std::mutex mutex_;
  std::unique_ptr<RecordRing> memory_;
  int n_started_ = 0;
};

}  // namespace ciranda
