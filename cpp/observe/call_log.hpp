// CallLog: writes to the log what this rank's calls do, on a thread of its own: at the level trace each call, at debug
// that the ranks agree on the calls of a name by another path than before. The recorder is on meanwhile.
//
// Calls never wait for it: if they complete faster than they can be written, some are left out, and the log says how
// many. A line has the time and the step of the call's end. Called by Engine, any thread; signals are blocked while
// this is created.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/log.hpp"
#include "observe/record_reader.hpp"

namespace ciranda {

class CallLog {
 public:
  CallLog(std::shared_ptr<Recorder> recorder, Logger logger);

  // A step of the training has ended.
  void count_step();
  // Writes what was recorded until now, and records no longer. Does nothing when called again.
  void end() { reader_.end(); }

 private:
  void write(const Record& record, std::uint64_t n_lost);
  void log_other_path(const Record& record, std::int64_t at_us, std::uint64_t n_steps);
  std::uint64_t n_steps_at(std::int64_t at_ns);

  const Logger logger_;
  std::unordered_map<std::string, std::string_view> agreements_;  // by call and lane
  std::mutex mutex_;                                              // guards the next two members
  std::uint64_t n_steps_ = 0;                                     // that had ended before the last record
  std::deque<std::int64_t> steps_after_;                          // when later steps ended, by the records' clock
  RecordReader reader_;
};

}  // namespace ciranda
