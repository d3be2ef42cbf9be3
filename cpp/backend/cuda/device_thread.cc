#include "backend/cuda/device_thread.hpp"

#include <chrono>
#include <utility>

#include "base/block_signals.hpp"
#include "base/relax.hpp"

namespace ciranda::cuda {
namespace {

// While copies are under way, the thread queries their events this many times in a row. If none has passed by then, it
// sleeps for the interval before each further query.
constexpr int kQuickLooks = 200;
constexpr std::chrono::microseconds kInterval{20};

}  // namespace

DeviceThread::DeviceThread(const GpuContext& gpu) : gpu_(gpu) {
  const BlockSignals blocked;  // the thread inherits the mask
  std::thread([this] { loop(); }).detach();
}

void DeviceThread::run(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  has_jobs_.notify_one();
}

void DeviceThread::when_passed(std::shared_ptr<const Event> event, std::function<void(Status)> done) {
  awaited_.push_back({std::move(event), std::move(done)});
}

void DeviceThread::loop() {
  gpu_.driver.cuCtxSetCurrent(gpu_.context);
  auto mode = CUstreamCaptureMode::kRelaxed;  // none of its calls is about a graph that another thread captures
  gpu_.driver.cuThreadExchangeStreamCaptureMode(&mode);
  int n_looks = 0;  // in a row, without an event that has passed
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_job = [this] { return !jobs_.empty(); };
    if (awaited_.empty()) {
      has_jobs_.wait(lock, has_job);
    } else if (n_looks > kQuickLooks) {
      has_jobs_.wait_for(lock, kInterval, has_job);
    }
    while (!jobs_.empty()) {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // freeing what it kept alive may add a job
      lock.lock();
      n_looks = 0;
    }
    lock.unlock();
    n_looks = look() ? 0 : n_looks + 1;
    relax();
    lock.lock();
  }
}

// Calls back for each event that has passed. Returns whether one has. After a failure it is unknown when the copies
// end, so the memory that `done` keeps alive is never freed.
bool DeviceThread::look() {
  bool has_passed = false;
  for (auto awaited = awaited_.begin(); awaited != awaited_.end();) {
    const Result<bool> passed = awaited->event->query();
    if (passed.ok() && !passed.value()) {
      ++awaited;
      continue;
    }
    awaited->done(passed.status());
    if (!passed.ok()) static_cast<void>(new Awaited(std::move(*awaited)));
    awaited = awaited_.erase(awaited);
    has_passed = true;
  }
  return has_passed;
}

}  // namespace ciranda::cuda
