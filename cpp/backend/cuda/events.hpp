// Events: the events of one GPU. They are reused, because the driver takes microseconds to create one.
//
// Any thread. An event may be freed while a stream waits for it: the wait is for the work that was recorded before.
//
// Called by DeviceThread, Gpu, CopyStream, LoadedKernels, MemoryPool and PinnedMemory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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

class CapturedGraph;
class Events;

// Where a stream is captured into a graph.
struct InGraph {
  std::uint64_t capture = 0;             // the driver's number of the capture
  std::shared_ptr<CapturedGraph> graph;  // null: none
};

class Event final : public DeviceEvent {
 public:
  Event(Events& events, CUevent handle, InGraph in_graph)
      : events_(events), handle_(handle), in_graph_(std::move(in_graph)) {}
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Status order(const Place& place) const override;
  bool has_passed() const override {
    const Result<bool> passed = query();
    return passed.ok() && passed.value();
  }

  CUevent handle() const { return handle_; }
  // Of which it is a point, that passes at no time but in each replay; null: none.
  const std::shared_ptr<CapturedGraph>& graph() const { return in_graph_.graph; }
  // Whether it has passed. An error means that the GPU has failed. REQUIRES: it is of no graph.
  Result<bool> query() const;

 private:
  Status order_in_graph(const GpuContext& gpu, CUstream stream) const;

  Events& events_;
  const CUevent handle_;
  const InGraph in_graph_;
};

class Events {
 public:
  explicit Events(const GpuContext& gpu) : gpu_(gpu) {}

  // Returns an event that passes when all work queued in the stream so far is done. `in_graph`: where the stream is
  // captured. REQUIRES: the GPU's context is the thread's.
  Result<std::shared_ptr<const Event>> record(CUstream stream, InGraph in_graph = {});

 private:
  friend class Event;

  Result<CUevent> take();
  void give_back(CUevent handle);

  const GpuContext gpu_;
  std::mutex mutex_;
  std::vector<CUevent> free_;
};

}  // namespace ciranda::cuda
