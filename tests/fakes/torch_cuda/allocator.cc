#include "allocator.hpp"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "current.hpp"

namespace ciranda::fakes::torch_cuda {
namespace {

struct Block {
  CUdeviceptr address;
  std::size_t n_bytes;
  int device;
  CUstream stream;             // that it was allocated on
  std::set<CUstream> used_by;  // besides
};

// A freed block that other streams may still use: free after these events.
struct Waiting {
  Block* block;
  std::vector<CUevent> events;
};

void free_block(void* block);

// Whether the program asks for memory that CUDA IPC does not export, as that of pools and of expandable segments.
bool comes_from_pool() {
  const char* const asked = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  const std::string_view how = asked == nullptr ? "" : asked;
  const auto has = [how](std::string_view option) { return how.find(option) != std::string_view::npos; };
  return has("backend:cudaMallocAsync") || has("expandable_segments:True");
}

class DeviceAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n_bytes) override {
    const int device = current_device();
    const c10::Device on(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (n_bytes == 0) return {nullptr, on};
    const std::lock_guard lock(mutex_);
    Block* const block = take(n_bytes, device, current_stream(device));
    n_allocated_bytes_[device] += n_bytes;
    return {reinterpret_cast<void*>(block->address), block, &free_block, on};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, std::size_t n_bytes) const override {
    const int device = current_device();
    use_context(device);
    const auto number = [](const void* address) { return reinterpret_cast<CUdeviceptr>(address); };
    check(driver().copy(number(to), number(from), n_bytes, current_stream(device)), "cuMemcpyAsync");
  }

  void free(Block* block) {
    const std::lock_guard lock(mutex_);
    n_allocated_bytes_[block->device] -= block->n_bytes;
    if (block->used_by.empty()) {
      free_[key_of(*block)].push_back(block);
      return;
    }
    Waiting waiting{block, {}};
    use_context(block->device);
    for (CUstream each : std::exchange(block->used_by, {})) {
      CUevent event = nullptr;
      check(driver().create_event(&event, cuda::kEventDisableTiming), "cuEventCreate");
      check(driver().record_event(event, each), "cuEventRecord");
      waiting.events.push_back(event);
    }
    waiting_.push_back(std::move(waiting));
  }

  void record(Block* block, CUstream stream) {
    const std::lock_guard lock(mutex_);
    if (stream != block->stream) block->used_by.insert(stream);
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, blocks] : std::exchange(free_, {})) {
      for (Block* each : blocks) give_back(std::unique_ptr<Block>(each));
    }
  }

  std::size_t n_allocated_bytes(int device) {
    const std::lock_guard lock(mutex_);
    return n_allocated_bytes_[device];
  }

 private:
  using Key = std::tuple<int, CUstream, std::size_t>;

  static Key key_of(const Block& block) { return {block.device, block.stream, block.n_bytes}; }

  Block* take(std::size_t n_bytes, int device, CUstream stream) {
    use_context(device);
    free_what_is_done();
    auto& fitting = free_[{device, stream, n_bytes}];
    if (fitting.empty()) {
      CUdeviceptr address = 0;
      const CUresult allocated =
          is_from_pool_ ? driver().allocate_from_pool(&address, n_bytes, stream) : driver().allocate(&address, n_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, allocated != CUresult::kOutOfMemory, "CUDA out of memory. Tried to allocate ",
                       n_bytes, " bytes");
      check(allocated, "cuMemAlloc");
      return new Block{address, n_bytes, device, stream, {}};
    }
    Block* const block = fitting.back();
    fitting.pop_back();
    return block;
  }

  void free_what_is_done() {
    waiting_.remove_if([this](Waiting& each) {
      while (!each.events.empty() && driver().query_event(each.events.back()) == CUresult::kSuccess) {
        check(driver().destroy_event(each.events.back()), "cuEventDestroy");
        each.events.pop_back();
      }
      if (each.events.empty()) free_[key_of(*each.block)].push_back(each.block);
      return each.events.empty();
    });
  }

  // Waits for all streams of the device, as the real driver does when it frees memory.
  void give_back(std::unique_ptr<Block> block) const {
    use_context(block->device);
    check(driver().synchronize(), "cuCtxSynchronize");
    if (is_from_pool_) return check(driver().free_to_pool(block->address, block->stream), "cuMemFreeAsync");
    check(driver().free(block->address), "cuMemFree");
  }

  const bool is_from_pool_ = comes_from_pool();
  std::mutex mutex_;
  std::map<Key, std::vector<Block*>> free_;
  std::list<Waiting> waiting_;
  std::map<int, std::size_t> n_allocated_bytes_;
};

DeviceAllocator& allocator() {
  static auto* const kept = new DeviceAllocator;  // tensors may outlive all else
  return *kept;
}

void free_block(void* block) { allocator().free(static_cast<Block*>(block)); }

// Of whole calls to the driver: what is freed is not used again.
class PinnedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n_bytes) override {
    if (n_bytes == 0) return {nullptr, c10::kCPU};
    void* memory = nullptr;
    use_context(current_device());
    check(driver().allocate_pinned(&memory, n_bytes, cuda::kMemHostPortable), "cuMemHostAlloc");
    const std::lock_guard lock(mutex_);
    ends_[reinterpret_cast<std::uintptr_t>(memory)] = reinterpret_cast<std::uintptr_t>(memory) + n_bytes;
    return {memory, memory, raw_deleter(), c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override;

  void copy_data(void* to, const void* from, std::size_t n_bytes) const override {
    default_copy_data(to, from, n_bytes);
  }

  bool has(const void* address) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    const auto after = ends_.upper_bound(number);
    return after != ends_.begin() && number < std::prev(after)->second;
  }

  void free(void* memory) {
    {
      const std::lock_guard lock(mutex_);
      ends_.erase(reinterpret_cast<std::uintptr_t>(memory));
    }
    use_context(current_device());
    check(driver().free_pinned(memory), "cuMemFreeHost");
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by where they begin
};

PinnedAllocator& pinned() {
  static auto* const kept = new PinnedAllocator;
  return *kept;
}

c10::DeleterFnPtr PinnedAllocator::raw_deleter() const {
  return [](void* memory) { pinned().free(memory); };
}

}  // namespace

c10::Allocator& device_allocator() { return allocator(); }
c10::Allocator& pinned_allocator() { return pinned(); }
bool is_pinned(const void* address) { return pinned().has(address); }

void record_stream(const c10::DataPtr& memory, CUstream stream) {
  if (memory.get_deleter() == &free_block) allocator().record(static_cast<Block*>(memory.get_context()), stream);
}

void empty_cache() { allocator().empty_cache(); }
std::size_t n_allocated_bytes(int device) { return allocator().n_allocated_bytes(device); }

}  // namespace ciranda::fakes::torch_cuda
