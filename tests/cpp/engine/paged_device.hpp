// PagedDevice: a device for tests whose memory the host cannot touch. Its pages are mapped without access, so that a
// thread of the host that reads or writes there ends the process. What runs in a queue sees the same pages elsewhere.
//
// A queue is a thread that does what it is given, in order, while nobody waits for it. The device copies in queues of
// its own, two for each of the callers', and begins copies to it in a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/device.hpp"

namespace ciranda::testing {

// Any thread. Ends when it has done all that it was given.
class PagedQueue {
 public:
  PagedQueue() : thread_([this] { run(); }) {}
  ~PagedQueue();
  PagedQueue(const PagedQueue&) = delete;
  PagedQueue& operator=(const PagedQueue&) = delete;

  // Behind all that it was given before.
  void launch(std::function<void()> kernel);
  // Until it has done all that it was given before.
  void synchronize();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable is_given_;
  std::deque<std::function<void()>> kernels_;
  bool has_ended_ = false;
  std::thread thread_;
};

class PagedDevice final : public Device {
 public:
  static constexpr DeviceType kType{200};
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  PagedDevice();
  ~PagedDevice() override;
  PagedDevice(const PagedDevice&) = delete;
  PagedDevice& operator=(const PagedDevice&) = delete;

  // Memory of the device, freed in the order of the queue. Null: out of memory.
  std::shared_ptr<std::byte> allocate(const Place& place, std::size_t n_bytes);
  HostMemory allocate_on_host(const Place& place, std::size_t n_bytes) override;
  Result<DeviceEventPtr> record(const Place& place) override;
  void fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) override;
  void put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued, Done done) override;

  // What a kernel may read and write.
  std::byte* in_kernel(const std::byte* memory) const { return visible_ + (memory - memory_); }

  // From now on, what the device is asked for fails so.
  enum class Fault : std::uint8_t {
    kNone,
    kRecord,    // an event is refused
    kFetch,     // a copy from the device fails
    kQueuePut,  // a copy to it is refused
    kPut,       // a copy to it fails when it is its turn
    kHeldPut,   // a copy to it waits for another fault
    kMemory,    // there is no memory for results
  };
  void fail(Fault fault) { fault_ = fault; }
  bool holds_put() const { return holds_put_; }

 private:
  struct OwnQueues {
    PagedQueue fetches;
    PagedQueue puts;
  };

  void free(std::size_t begin, std::size_t n_bytes);
  OwnQueues& own_queues(const Place& place);

  std::byte* memory_ = nullptr;   // as tensors have it: without access
  std::byte* visible_ = nullptr;  // the same pages, for kernels
  std::mutex mutex_;
  std::multimap<std::size_t, std::size_t> free_;  // where, by size
  std::size_t n_bytes_used_ = 0;
  std::atomic<Fault> fault_{Fault::kNone};
  std::atomic<bool> holds_put_{false};
  std::mutex own_mutex_;
  std::map<void*, OwnQueues> own_;  // by the caller's queue
  PagedQueue thread_;
};

// The one of the process.
PagedDevice& paged_device();

}  // namespace ciranda::testing
