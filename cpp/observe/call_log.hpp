// CallLog: writes to the log what this rank's calls do, on a thread of its own: at the level trace each call, at debug
// that the ranks agree on the calls of a name in another way than before. The recorder is on meanwhile.
//
// Calls never wait for it: if they complete faster than they can be written, some are left out, and the log says how
// many. Called by Engine; one thread at a time, which blocks signals while it creates this.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "base/log.hpp"
#include "observe/recording.hpp"

namespace ciranda {

class CallLog {
 public:
  CallLog(std::shared_ptr<Recorder> recorder, Logger logger);
  // Writes what was recorded until now.
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

 private:
  void run();
  std::size_t write_new_records();
  void write(const Record& record);
  void tell_other_way(const Record& record);

  const Logger logger_;
  Recording recording_;
  std::uint64_t n_told_lost_ = 0;
  std::unordered_map<std::string, std::string_view> ways_;  // by call and lane
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread writer_;
};

}  // namespace ciranda
