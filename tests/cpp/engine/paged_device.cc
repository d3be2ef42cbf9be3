#include "engine/paged_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "base/round_up.hpp"
#include "base/unique_fd.hpp"

namespace ciranda::testing {
namespace {

constexpr std::size_t kAlignment = 64;

PagedQueue& queue_of(const Place& place) { return *static_cast<PagedQueue*>(place.queue); }

class PagedEvent final : public DeviceEvent {
 public:
  Status order(const Place& place) const override {
    queue_of(place).launch([passed = passed_] { passed.wait(); });
    return Status::ok_status();
  }
  bool has_passed() const override { return passed_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void wait() const { passed_.wait(); }
  void pass() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> passed_{promise_.get_future()};
};

void wait_for(const DeviceEventPtr& event) { static_cast<const PagedEvent&>(*event).wait(); }

Status failed(const char* what, const std::vector<DeviceCopy>& copies) {
  std::size_t n_bytes = 0;
  for (const DeviceCopy& copy : copies) n_bytes += copy.n_bytes;
  return Status::internal(std::string("the copy of ") + std::to_string(n_bytes) + " bytes " + what);
}

std::byte* map(int descriptor, int protection) {
  void* at = mmap(nullptr, PagedDevice::kMostBytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(at);
}

}  // namespace

PagedQueue::~PagedQueue() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  is_given_.notify_one();
  thread_.join();
}

void PagedQueue::launch(std::function<void()> kernel) {
  {
    const std::lock_guard lock(mutex_);
    kernels_.push_back(std::move(kernel));
  }
  is_given_.notify_one();
}

void PagedQueue::synchronize() {
  std::promise<void> reached;
  launch([&reached] { reached.set_value(); });
  reached.get_future().wait();
}

void PagedQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    is_given_.wait(lock, [this] { return has_ended_ || !kernels_.empty(); });
    if (kernels_.empty()) return;
    std::function<void()> kernel = std::move(kernels_.front());
    kernels_.pop_front();
    lock.unlock();
    kernel();
    kernel = nullptr;  // with what it keeps alive
    lock.lock();
  }
}

PagedDevice::PagedDevice() {
  const UniqueFd pages(memfd_create("paged device", MFD_CLOEXEC));
  if (!pages.valid() || ftruncate(pages.get(), kMostBytes) != 0) std::abort();
  memory_ = map(pages.get(), PROT_NONE);
  visible_ = map(pages.get(), PROT_READ | PROT_WRITE);
}

PagedDevice::~PagedDevice() {
  munmap(memory_, kMostBytes);
  munmap(visible_, kMostBytes);
}

std::shared_ptr<std::byte> PagedDevice::allocate(const Place& place, std::size_t n_bytes) {
  const std::size_t size = round_up(std::max<std::size_t>(n_bytes, 1), kAlignment);
  const std::lock_guard lock(mutex_);
  std::size_t begin = n_bytes_used_;
  if (const auto found = free_.find(size); found != free_.end()) {
    begin = found->second;
    free_.erase(found);
  } else if (size > kMostBytes - n_bytes_used_) {
    return nullptr;
  } else {
    n_bytes_used_ += size;
  }
  return {memory_ + begin, [this, &queue = queue_of(place), begin, size](std::byte*) {
            queue.launch([this, begin, size] { free(begin, size); });
          }};
}

void PagedDevice::free(std::size_t begin, std::size_t n_bytes) {
  std::memset(visible_ + begin, 0xEE, n_bytes);  // who reads it later notices
  const std::lock_guard lock(mutex_);
  free_.emplace(n_bytes, begin);
}

HostMemory PagedDevice::allocate_on_host(const Place&, std::size_t n_bytes) {
  return {{new std::byte[n_bytes], std::default_delete<std::byte[]>()}};
}

PagedDevice::OwnQueues& PagedDevice::own_queues(const Place& place) {
  const std::lock_guard lock(own_mutex_);
  return own_[place.queue];
}

Result<DeviceEventPtr> PagedDevice::record(const Place& place) {
  if (fault_ == Fault::kRecord) return Status::internal("the device records no event");
  auto event = std::make_shared<PagedEvent>();
  queue_of(place).launch([event] { event->pass(); });
  return DeviceEventPtr(event);
}

void PagedDevice::fetch(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Done done) {
  own_queues(place).fetches.launch(
      [this, copies = std::move(copies), after = std::move(after), done = std::move(done)] {
        wait_for(after);
        if (fault_ == Fault::kFetch) return done(failed("failed", copies));
        for (const DeviceCopy& one : copies) std::memcpy(one.to, in_kernel(one.from), one.n_bytes);
        done(Status::ok_status());
      });
}

void PagedDevice::put(const Place& place, std::vector<DeviceCopy> copies, DeviceEventPtr after, Queued queued,
                      Done done) {
  thread_.launch([this, place, copies = std::move(copies), after = std::move(after), queued = std::move(queued),
                  done = std::move(done)]() mutable {
    while (fault_ == Fault::kHeldPut) {
      holds_put_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    holds_put_ = false;
    if (fault_ == Fault::kQueuePut) return queued(failed("was refused", copies));
    auto event = std::make_shared<PagedEvent>();
    Put put{event};
    for (DeviceCopy& copy : copies) {
      if (copy.to != nullptr) continue;
      put.allocated.push_back(fault_ == Fault::kMemory ? nullptr : allocate(place, copy.n_bytes));
      copy.to = put.allocated.back().get();
    }
    const bool has_memory = std::ranges::none_of(copies, [](const DeviceCopy& copy) { return copy.to == nullptr; });
    queued(std::move(put));
    own_queues(place).puts.launch(
        [this, has_memory, copies = std::move(copies), after = std::move(after), event, done = std::move(done)] {
          wait_for(after);
          const bool fails = fault_ == Fault::kPut;
          for (const DeviceCopy& one : copies) {
            if (has_memory && !fails) std::memcpy(in_kernel(one.to), one.from, one.n_bytes);
          }
          event->pass();
          done(fails ? failed("failed", copies) : Status::ok_status());
        });
  });
}

PagedDevice& paged_device() {
  static PagedDevice device;
  return device;
}

}  // namespace ciranda::testing
