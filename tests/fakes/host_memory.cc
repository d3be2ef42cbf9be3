#include "host_memory.hpp"

#include <sys/mman.h>

#include <atomic>

#include "arena.hpp"
#include "base/round_up.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

constexpr std::uintptr_t kPage = 4096;

std::atomic<std::size_t> n_pinned_bytes{0};

bool take(std::size_t n_bytes) {
  const std::size_t before = n_pinned_bytes.fetch_add(n_bytes);
  if (before + n_bytes <= settings()->most_pinned_bytes) return true;
  n_pinned_bytes -= n_bytes;
  return false;
}

Arena& pinned() {
  static auto* const kept = new Arena("fake-cuda-pinned", PROT_READ | PROT_WRITE);  // outlives the streams' threads
  return *kept;
}

std::uintptr_t page_of(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory) / kPage * kPage; }

std::size_t n_page_bytes(const std::byte* memory, std::size_t n_bytes) {
  return round_up(reinterpret_cast<std::uintptr_t>(memory) + n_bytes, kPage) - page_of(memory);
}

// Maps the pages once more. An old size of zero asks for that; it is refused where they are private, or no one mapping.
std::byte* map_again(std::byte* memory, std::size_t n_bytes) {
  auto* const pages = reinterpret_cast<void*>(page_of(memory));
  void* const again = mremap(pages, 0, n_page_bytes(memory, n_bytes), MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return memory;
  return static_cast<std::byte*>(again) + (reinterpret_cast<std::uintptr_t>(memory) - page_of(memory));
}

bool overlaps_known(const std::byte* memory, std::size_t n_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  bool overlaps = false;
  address_map().for_each([&](const Range& range) {
    if (range.is_host() && begin < range.end() && range.begin < begin + n_bytes) overlaps = true;
  });
  return overlaps;
}

std::shared_ptr<Range> add(Kind kind, CUdevice device, std::byte* memory, std::byte* visible, std::size_t n_bytes) {
  Range range{.kind = kind,
              .begin = reinterpret_cast<std::uintptr_t>(memory),
              .n_bytes = n_bytes,
              .visible = visible,
              .device = device,
              .origin = kind == Kind::kPinned ? "cuMemHostAlloc" : "cuMemHostRegister"};
  if (visible != memory) range.pages = std::make_unique<HostPages>(memory, n_bytes);
  return address_map().add(std::move(range));
}

}  // namespace

std::shared_ptr<Range> allocate_pinned(CUdevice device, std::size_t n_bytes) {
  if (!take(n_bytes)) return nullptr;
  std::byte* const memory = pinned().allocate(n_bytes, Arena::kBytes);
  if (memory == nullptr) {
    n_pinned_bytes -= n_bytes;
    return nullptr;
  }
  return add(Kind::kPinned, device, memory, pinned().in_kernel(memory), n_bytes);
}

void release_pinned(const Range& range) {
  pinned().release(range.memory());
  n_pinned_bytes -= range.n_bytes;
}

CUresult register_host(CUdevice device, std::byte* memory, std::size_t n_bytes) {
  if (!settings()->registers) return CUresult::kNotSupported;
  if (overlaps_known(memory, n_bytes)) return CUresult::kHostMemoryAlreadyRegistered;
  if (!take(n_bytes)) return CUresult::kOutOfMemory;
  add(Kind::kRegistered, device, memory, map_again(memory, n_bytes), n_bytes);
  return CUresult::kSuccess;
}

void unregister_host(const Range& range) {
  n_pinned_bytes -= range.n_bytes;
  if (range.visible == range.memory()) return;
  munmap(reinterpret_cast<void*>(page_of(range.visible)), n_page_bytes(range.visible, range.n_bytes));
}

}  // namespace ciranda::fakes
