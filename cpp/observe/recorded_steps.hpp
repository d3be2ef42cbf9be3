// RecordedSteps: the records of this rank in the file that the launcher has made for a timeline of all ranks: those
// between two steps of the training, if the settings say so, else those from start() to stop().
//
// Called by Engine, which owns it; any thread.
// Failure: a file that cannot be written is reported once, on standard error; no call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.hpp"
#include "observe/recorder.hpp"
#include "observe/timeline.hpp"

namespace ciranda {

class RecordedSteps {
 public:
  struct Options {
    std::string path;  // of a file that exists; empty: none is wanted from the beginning
    int rank = 0;
    int size = 1;
    std::uint64_t from = 0;   // the number of steps that end before the first record
    std::uint64_t until = 0;  // ... before the last; 0: none
  };
  RecordedSteps(Options options, std::shared_ptr<Recorder> recorder, const Logger& logger);

  // Appends to a file that exists, from now on. Does nothing if it has been called with this file before, or if there
  // is one from the beginning.
  void start(const std::string& path);
  // Completes the file of start(), if there is one.
  void stop();
  // A step has ended.
  void count_step();
  // The world ends: completes the file. Nothing is recorded afterwards.
  void end();

 private:
  void begin(const std::string& path);

  const Options options_;
  const std::shared_ptr<Recorder> recorder_;
  const Logger logger_;
  std::mutex mutex_;
  std::uint64_t n_steps_ = 0;
  bool has_ended_ = false;
  std::string started_;                 // the path of start()
  std::unique_ptr<Timeline> timeline_;  // null before and after
};

}  // namespace ciranda
