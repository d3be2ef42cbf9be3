// Timeline: writes the calls of this rank to a file, on a thread of its own, in the format that it is given. Calls
// never wait for it: if they complete faster than the file can be written, some are left out, and the file says how
// many.
//
// Called by Engine and RecordedSteps; one thread at a time creates and destroys it (under BlockSignals);
// add_step() on any thread.
// Failure: a failed write is reported once, on standard error; no call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "observe/record_format.hpp"
#include "observe/record_reader.hpp"

namespace ciranda {

class Timeline {
 public:
  struct Options {
    std::string path;
    bool appends = false;  // to a file that exists, to which only earlier worlds of this process have written
  };
  // InvalidArgument if the file cannot be made.
  static Result<std::unique_ptr<Timeline>> create(const Options& options, std::unique_ptr<RecordFormat> format,
                                                  std::shared_ptr<Recorder> recorder, const Logger& logger);
  // Completes the file.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // This many steps of the training have ended now.
  void add_step(std::uint64_t n_steps);

 private:
  Timeline(UniqueFd file, const Options& options, std::unique_ptr<RecordFormat> format,
           std::shared_ptr<Recorder> recorder, const Logger& logger);
  void write(const Record& record, std::uint64_t n_lost);
  void flush();
  void put(std::string& text);

  const std::string path_;
  const Logger logger_;
  UniqueFd file_;
  const std::unique_ptr<RecordFormat> format_;
  std::string text_;  // not yet written
  std::uint64_t n_lost_ = 0;
  bool is_broken_ = false;
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::int64_t>> new_steps_;  // their numbers and times, not yet written
  std::optional<RecordReader> reader_;
};

}  // namespace ciranda
