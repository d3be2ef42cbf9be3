// DeviceThread: the thread that gives one GPU its work, and learns when that is done. Only it queues copies: a driver
// call blocks while a queue is full or another thread has the context. The holder of the progress lock must not block
// there, since other ranks may depend on it.
//
// It sleeps while there is no work. While copies are under way, it queries their events, at first often, then less
// often. Any thread may call its methods. It lives as long as the process.
//
// Called by Gpu.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "backend/cuda/events.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class DeviceThread {
 public:
  explicit DeviceThread(const GpuContext& gpu);
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Runs the job on the thread, after all jobs before it, with the GPU's context.
  void run(std::function<void()> job);
  // Calls `done` on the thread once the event has passed, or with the reason why it never will. REQUIRES: called by a
  // job.
  void when_passed(std::shared_ptr<const Event> event, std::function<void(Status)> done);

 private:
  struct Awaited {
    std::shared_ptr<const Event> event;
    std::function<void(Status)> done;
  };

  [[noreturn]] void loop();
  bool look();

  const GpuContext gpu_;
  std::mutex mutex_;
  std::condition_variable has_jobs_;
  std::deque<std::function<void()>> jobs_;
  std::list<Awaited> awaited_;  // the thread's own
};

}  // namespace ciranda::cuda
