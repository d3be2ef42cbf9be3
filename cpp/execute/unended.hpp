// Unended: the calls of this rank that are done and whose work on its device has not ended, in the order in which it
// was queued, over all lanes. If the world fails, their results are void, also where a wait has let them pass: the next
// call says so, and names the first.
//
// Called by DataPlane, ProgressLoop and Engine, through WorldParts. Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/device_work.hpp"
#include "base/status.hpp"

namespace ciranda {

class Unended {
 public:
  // `what`: as in "allreduce 'a'".
  void add(std::string what, std::shared_ptr<DeviceWork> work);
  // The first that have ended well are no longer among them.
  void forget_ended();
  // The world has failed, with this. Returns it, with the first result that is void.
  Status fail(const Status& why);

  // Sleeps until all have ended well, some time has passed, or the world has failed. Returns whether none is left, or
  // what fail() has returned.
  Result<bool> await(std::chrono::milliseconds at_most);

 private:
  struct Call {
    std::string what;
    std::shared_ptr<DeviceWork> work;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  Status failed_;
};

}  // namespace ciranda
