// Events: the events of one GPU. They are reused, because the driver takes microseconds to create one.
//
// Any thread. An event may be freed while a stream waits for it: the wait is for the work that was recorded before.
//
// Called by DeviceThread, Gpu, CopyStream, LoadedKernels, MemoryPool and PinnedMemory.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/driver.hpp"
#include "base/device_event.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

// The parts of a GPU that its events use.
struct GpuContext {
  const Driver& driver;
  CUcontext context;
  std::string name;  // "GPU 0 (GPU-5f0a11c2)": its number in this process, and how its UUID begins

  Status check(CUresult outcome, std::string_view call) const { return driver.check(outcome, call, name); }
};

class Events;

class Event final : public DeviceEvent {
 public:
  Event(Events& events, CUevent handle) : events_(events), handle_(handle) {}
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Status order(const Place& place) const override;
  bool has_passed() const override {
    const Result<bool> passed = query();
    return passed.ok() && passed.value();
  }

  CUevent handle() const { return handle_; }
  // Whether it has passed. An error means that the GPU has failed.
  Result<bool> query() const;

 private:
  Events& events_;
  const CUevent handle_;
};

class Events {
 public:
  explicit Events(const GpuContext& gpu) : gpu_(gpu) {}

  // Returns an event that passes when all work queued in the stream so far is done. REQUIRES: the GPU's context is the
  // thread's.
  Result<std::shared_ptr<const Event>> record(CUstream stream);

 private:
  friend class Event;

  Result<CUevent> take();
  void give_back(CUevent handle);

  const GpuContext gpu_;
  std::mutex mutex_;
  std::vector<CUevent> free_;
};

}  // namespace ciranda::cuda
