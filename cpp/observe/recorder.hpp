// Recorder: notes the calls of one rank while somebody asks for it (see Recording). While nobody does, it costs a look
// at a word that nobody writes.
//
// Threads: one writes at a time; the rest from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "observe/record_ring.hpp"
#include "observe/stages.hpp"

namespace ciranda {

class Recorder {
 public:
  // 2 MiB, once somebody has asked.
  static constexpr std::size_t kMostRecords = 8192;

  explicit Recorder(std::size_t most_records = kMostRecords) : most_records_(most_records) {}

  bool is_on() const { return ring_.load(std::memory_order_relaxed) != nullptr; }
  // Now, in ticks; 0 while it is off.
  std::uint64_t now() const { return is_on() ? ticks() : 0; }

  // Nothing while it is off.
  void write(const RecordedCall& call, const Stages& stages) {
    if (RecordRing* ring = ring_.load(std::memory_order_acquire)) ring->write(call, stages);
  }

  // As often stopped as started. The ring lives as long as this.
  const RecordRing& start() {
    const std::lock_guard lock(mutex_);
    if (!memory_) memory_ = std::make_unique<RecordRing>(most_records_);
    ++n_started_;
    ring_.store(memory_.get(), std::memory_order_release);
    return *memory_;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    if (--n_started_ == 0) ring_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  const std::size_t most_records_;
  std::atomic<RecordRing*> ring_{nullptr};  // null: off
  std::mutex mutex_;
  std::unique_ptr<RecordRing> memory_;
  int n_started_ = 0;
};

}  // namespace ciranda
