// RecordFormat: how a Timeline writes records, steps and losses. All functions append to `to`; together, from begin()
// to end(), that is a file.
//
// TraceFormat is for people, BinaryFormat for the launcher, which merges the files of all ranks.
// Called by Timeline on its thread, through TraceFormat and BinaryFormat; no I/O.
#pragma once

#include <cstdint>
#include <string>

#include "observe/recording.hpp"

namespace ciranda {

class RecordFormat {
 public:
  RecordFormat() = default;
  virtual ~RecordFormat() = default;
  RecordFormat(const RecordFormat&) = delete;
  RecordFormat& operator=(const RecordFormat&) = delete;

  // Whether add() is to get arrivals as well.
  virtual bool wants_arrivals() const { return false; }
  // `epoch_us`: the time of day, in microseconds since the epoch, at which the records' clock was 0.
  virtual void begin(std::int64_t epoch_us, std::string& to) = 0;
  virtual void add(const Record& record, std::string& to) = 0;
  // This many steps of the training had ended at this time.
  virtual void add_step(std::uint64_t n_steps, std::int64_t at_ns, std::string& to) = 0;
  // n_records records were lost at about this time.
  virtual void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) = 0;
  virtual void end(std::string& to) = 0;
};

}  // namespace ciranda
