// Workers: the threads of the streams. They end before the process does, whatever they have still to do, as the work of
// a GPU does; calls that come later are refused.
//
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace ciranda::fakes {

class Workers {
 public:
  // Runs `work` on a thread of its own. `wake` makes it look at are_over(), after which it is to return.
  void start(std::function<void()> work, std::function<void()> wake);
  bool are_over() const { return are_over_; }

 private:
  struct Worker {
    std::thread thread;
    std::function<void()> wake;
    std::atomic<bool> has_ended{false};
  };

  void join_ended();
  void end();

  std::atomic<bool> are_over_{false};
  std::mutex mutex_;
  bool has_begun_ = false;
  std::list<Worker> all_;
};

// Those of the process.
Workers& workers();

}  // namespace ciranda::fakes
