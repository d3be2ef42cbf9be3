// Recording: reads the records of a Recorder, which is on while a Recording exists. Each Recording reads all calls that
// are recorded while it exists, and counts those that are overwritten before it reads them.
//
// Called by capi/recording.cc, RecordReader, RecordingHandle and RecordFormat; made by Engine; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/exported.hpp"
#include "observe/recorder.hpp"

namespace ciranda {

// A completed call that was submitted while the recorder was on, or an arrival at one.
struct Record {
  std::string name;
  Collective collective = Collective::kAllreduce;
  Path path = Path::kNone;
  std::string_view algorithm = {};
  ErrorKind outcome = ErrorKind::kOk;
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::uint64_t n_bytes = 0;
  std::optional<DataType> dtype = {};             // of the first tensor
  std::optional<int> arrived = {};                // as in RecordedCall
  std::array<std::int64_t, kStageCount> at_ns{};  // times of the monotonic clock; 0 if the call skipped the stage

  std::int64_t operator[](Stage stage) const { return at_ns[static_cast<std::size_t>(stage)]; }
};

// Converts ticks to nanoseconds of the monotonic clock. Each look() reads both clocks; times in between are
// interpolated. A later look() does not change earlier results, so their order is kept.
class TickClock {
 public:
  TickClock() { look(); }

  // Reads both clocks.
  void look();
  // Converts `ticks`; 0 (a skipped stage) stays 0. REQUIRES: a look() later than `ticks`.
  std::int64_t nanoseconds(std::uint64_t ticks) const;

 private:
  // The most pairs that are kept. At ten looks a millisecond they cover 400 ms, longer than almost every call.
  static constexpr std::size_t kMost = 4096;

  std::deque<BothClocks> pairs_;  // ascending; never empty
};

class Recording {
 public:
  // `wants_arrivals`: reads those as well, not only calls.
  explicit Recording(std::shared_ptr<Recorder> recorder, bool wants_arrivals = false)
      : recorder_(std::move(recorder)),
        wants_arrivals_(wants_arrivals),
        ring_(recorder_->start(wants_arrivals)),
        n_read_(ring_.n_written()),
        n_known_(n_read_) {}
  ~Recording() { recorder_->stop(wants_arrivals_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Reads the next record, in the order in which calls completed. False if there is none yet.
  CIRANDA_EXPORTED bool read(Record& record);

  // The most records that wait to be read.
  std::size_t capacity() const { return ring_.capacity(); }

  // The number of records so far that were overwritten before they were read.
  std::uint64_t n_lost() const { return n_lost_; }

 private:
  std::shared_ptr<Recorder> recorder_;
  const bool wants_arrivals_;
  const RecordRing& ring_;
  TickClock clock_;
  std::uint64_t n_read_;   // records read or lost
  std::uint64_t n_known_;  // records written before the clock's last look
  std::uint64_t n_lost_ = 0;
};

}  // namespace ciranda
