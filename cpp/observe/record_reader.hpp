// RecordReader: a thread that reads the records of a Recorder, and hands each to its owner, until it is ended. The
// recorder is on meanwhile.
//
// Calls never wait for it: records that are overwritten before it reads them are lost, and counted. Called by CallLog
// and Timeline, which own it; one thread at a time makes it (under BlockSignals) and ends it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "observe/recording.hpp"

namespace ciranda {

class RecordReader {
 public:
  // Called on the thread of the reader, the last time on that of end().
  struct Owner {
    // `n_lost`: the records that were lost between the one before and this one.
    std::function<void(const Record& record, std::uint64_t n_lost)> take;
    // After each look at the ring, whether there were records or not.
    std::function<void()> after_look = [] {};
    bool wants_arrivals = false;  // as for Recording
  };

  RecordReader(std::shared_ptr<Recorder> recorder, Owner owner);
  ~RecordReader() { end(); }
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  // Hands over what was recorded until now, and reads no longer. Does nothing when called again.
  void end();

 private:
  void run();
  std::size_t look();

  const Owner owner_;
  std::optional<Recording> recording_;
  std::uint64_t n_told_lost_ = 0;
  std::mutex mutex_;  // guards the member below
  bool is_ending_ = false;
  std::condition_variable ends_;
  std::thread thread_;
};

}  // namespace ciranda
