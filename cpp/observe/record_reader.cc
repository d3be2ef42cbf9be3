#include "observe/record_reader.hpp"

#include <chrono>
#include <utility>

#include "base/own_thread.hpp"

namespace ciranda {
namespace {

// The most by which the reader lags behind, and so the most that is lost if the process is killed. Each look wakes the
// thread and writes to a file, which takes 50 us: a large ring, which is full later, is looked at less often.
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr std::chrono::milliseconds kBetweenLooksAtLarge{50};
// After a look that has found many, the next is sooner: the ring must not be full before.
constexpr std::size_t kMany = Recorder::kMostRecords / 16;
constexpr std::size_t kMostAtOnce = Recorder::kMostRecords;

}  // namespace

RecordReader::RecordReader(std::shared_ptr<Recorder> recorder, Owner owner)
    : owner_(std::move(owner)),
      recording_(std::in_place, std::move(recorder), owner_.wants_arrivals),
      thread_([this] { run(); }) {}

void RecordReader::end() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_ending_, true)) return;
  }
  ends_.notify_one();
  thread_.join();
  look();
  recording_.reset();
}

void RecordReader::run() {
  const OwnThread own;
  std::unique_lock lock(mutex_);
  const auto between = recording_->capacity() < Recorder::kMostRecordedSteps ? kBetweenLooks : kBetweenLooksAtLarge;
  std::chrono::milliseconds until_look = between;
  while (!ends_.wait_for(lock, until_look, [this] { return is_ending_; })) {
    lock.unlock();
    const std::size_t n_read = look();
    // While there is more to read, the thread does not sleep: it might wait long for a core.
    until_look = n_read < kMany ? between : std::chrono::milliseconds(n_read < kMostAtOnce ? 1 : 0);
    lock.lock();
  }
}

// Reads at most kMostAtOnce: other threads may add records without end meanwhile. Returns how many.
std::size_t RecordReader::look() {
  Record record;
  std::size_t n_read = 0;
  for (; n_read < kMostAtOnce && recording_->read(record); ++n_read) {
    const std::uint64_t n_lost = recording_->n_lost();
    owner_.take(record, n_lost - std::exchange(n_told_lost_, n_lost));
  }
  owner_.after_look();
  return n_read;
}

}  // namespace ciranda
