// Recording: reads what a Recorder notes, which it does while there is one. Each reads all that is noted in its time;
// what it is too late for is counted.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "observe/recorder.hpp"

namespace ciranda {

// A call that is done: of those that were submitted while the recorder was on.
struct Record {
  std::string name;
  Collective collective = Collective::kAllreduce;
  Path path = Path::kNone;
  ErrorKind outcome = ErrorKind::kOk;
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::uint64_t n_bytes = 0;
  std::array<std::int64_t, kStageCount> at_ns{};  // on the monotonic clock; 0: the stage never came

  std::int64_t operator[](Stage stage) const { return at_ns[static_cast<std::size_t>(stage)]; }
};

// From ticks to nanoseconds of the monotonic clock. Both clocks are read together now and then; in between, time is
// taken to pass evenly. What was translated once is never moved by what is read later, so order stays.
class TickClock {
 public:
  TickClock() { look(); }

  // Reads both clocks. REQUIRES, of nanoseconds(): a look after the ticks were.
  void look();
  // 0 stays 0: it never came.
  std::int64_t nanoseconds(std::uint64_t ticks) const;

 private:
  struct Pair {
    std::uint64_t ticks;
    std::int64_t nanoseconds;
  };
  // At ten looks a millisecond, more than any but the longest of calls takes.
  static constexpr std::size_t kMost = 4096;

  std::deque<Pair> pairs_;  // ascending; never empty
};

class Recording {
 public:
  explicit Recording(std::shared_ptr<Recorder> recorder)
      : recorder_(std::move(recorder)), ring_(recorder_->start()), n_read_(ring_.n_written()), n_known_(n_read_) {}
  ~Recording() { recorder_->stop(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // The next in the order in which calls were done. False: there is none yet.
  bool read(Record& record);

  // How many were gone before they were read, so far.
  std::uint64_t n_lost() const { return n_lost_; }

 private:
  std::shared_ptr<Recorder> recorder_;
  const RecordRing& ring_;
  TickClock clock_;
  std::uint64_t n_read_;   // or lost
  std::uint64_t n_known_;  // written by the clock's last look
  std::uint64_t n_lost_ = 0;
};

}  // namespace ciranda
