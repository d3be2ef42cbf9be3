// Timeline: writes the calls of this rank to a file, on a thread of its own, in the format of TraceFormat. Calls never
// wait for it: if they complete faster than the file can be written, some are left out, and the file says how many.
//
// Called by Engine; one thread at a time creates and destroys it (under BlockSignals).
// Failure: a failed write is reported once, on standard error; no call fails.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "observe/recording.hpp"
#include "observe/trace_format.hpp"

namespace ciranda {

class Timeline {
 public:
  struct Options {
    std::string path;
    bool marks_cycles = false;
    int rank = 0;
  };
  // InvalidArgument if the file cannot be made.
  static Result<std::unique_ptr<Timeline>> create(const Options& options, std::shared_ptr<Recorder> recorder,
                                                  const Logger& logger);
  // Completes the file.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

 private:
  Timeline(UniqueFd file, const Options& options, std::shared_ptr<Recorder> recorder, const Logger& logger);
  void run();
  void write_new_records();
  void put(std::string& text);

  const std::string path_;
  const Logger logger_;
  UniqueFd file_;
  Recording recording_;
  TraceFormat format_;
  std::uint64_t n_told_lost_ = 0;
  bool is_broken_ = false;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread writer_;
};

}  // namespace ciranda
