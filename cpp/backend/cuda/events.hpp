// Events: those of one GPU. An event is made once and used again, as the driver makes one in microseconds.
//
// Any thread. An event may be dropped while a stream waits for it: a wait is for what was recorded before it.
//
// Called by DeviceThread, Gpu, CopyStream, LoadedKernels and PinnedMemory.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/driver.hpp"
#include "base/device_event.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

// A GPU as far as its events need it.
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

  // The event behind all work that the stream has been given. REQUIRES: the GPU's context is the thread's.
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
