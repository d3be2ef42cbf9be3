// RecordedSteps: the records of this rank between two steps of the training, in the file that the launcher has made for
// its timeline of all ranks.
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
    std::string path;  // of a file that exists
    int rank = 0;
    int size = 1;
    std::uint64_t from = 0;   // the number of steps that end before the first record
    std::uint64_t until = 0;  // ... before the last; 0: none
  };
  RecordedSteps(Options options, std::shared_ptr<Recorder> recorder, const Logger& logger);

  // A step has ended.
  void count_step();
  // The world ends: completes the file. Nothing is recorded afterwards.
  void end();

 private:
  void begin();

  const Options options_;
  const std::shared_ptr<Recorder> recorder_;
  const Logger logger_;
  std::mutex mutex_;
  std::uint64_t n_steps_ = 0;
  bool has_ended_ = false;
  std::unique_ptr<Timeline> timeline_;  // null before and after
};

}  // namespace ciranda
