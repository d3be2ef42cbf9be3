#include "engine/paged_device.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "base/round_up.hpp"
#include "base/unique_fd.hpp"

namespace ciranda::testing {
namespace {

constexpr std::size_t kAlignment = 64;

PagedQueue& queue_of(const Place& place) { return *static_cast<PagedQueue*>(place.queue); }

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
  const std::size_t size = round_up(n_bytes, kAlignment);
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

std::shared_ptr<std::byte> PagedDevice::allocate_on_host(const Place&, std::size_t n_bytes) {
  return {new std::byte[n_bytes], std::default_delete<std::byte[]>()};
}

void PagedDevice::fetch(const Place& place, std::byte* to_host, const std::byte* from, std::size_t n_bytes, Done done) {
  queue_of(place).launch([this, to_host, from, n_bytes, done = std::move(done)] {
    if (fails_) return done(Status::internal("the copy of " + std::to_string(n_bytes) + " bytes failed"));
    std::memcpy(to_host, in_kernel(from), n_bytes);
    done(Status::ok_status());
  });
}

void PagedDevice::put(const Place& place, std::byte* to, const std::byte* from_host, std::size_t n_bytes, Done done) {
  queue_of(place).launch([this, to, from_host, n_bytes, done = std::move(done)] {
    std::memcpy(in_kernel(to), from_host, n_bytes);
    done(Status::ok_status());
  });
}

PagedDevice& paged_device() {
  static PagedDevice device;
  return device;
}

}  // namespace ciranda::testing
