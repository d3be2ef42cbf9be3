#include "device_memory.hpp"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <random>

#include "settings.hpp"

namespace ciranda::fakes {
namespace {

struct Arenas {
  std::mutex mutex;
  std::map<CUdevice, std::unique_ptr<Arena>> by_device;
};

Arenas& arenas() {
  static auto* const kept = new Arenas;  // outlives the threads of the streams
  return *kept;
}

}  // namespace

std::string arena_name(std::uint64_t token) { return "fake-cuda-" + std::to_string(token); }

std::uint64_t process_token() {
  static const std::uint64_t drawn = [] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }();
  return drawn;
}

Arena& arena_of(CUdevice device) {
  const std::lock_guard lock(arenas().mutex);
  auto& arena = arenas().by_device[device];
  if (arena == nullptr) arena = std::make_unique<Arena>(arena_name(process_token()), PROT_NONE);
  return *arena;
}

bool is_device_address(const void* address) {
  const std::unique_lock lock(arenas().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  for (const auto& [device, arena] : arenas().by_device) {
    if (arena->has(address)) return true;
  }
  return false;
}

std::shared_ptr<Range> allocate_device(CUdevice device, std::size_t n_bytes, std::string origin, bool can_be_exported) {
  Arena& arena = arena_of(device);
  std::byte* const memory = arena.allocate(n_bytes, settings()->most_device_bytes);
  if (memory == nullptr) return nullptr;
  return address_map().add({.kind = Kind::kDevice,
                            .begin = reinterpret_cast<std::uintptr_t>(memory),
                            .n_bytes = n_bytes,
                            .visible = arena.in_kernel(memory),
                            .device = device,
                            .origin = std::move(origin),
                            .can_be_exported = can_be_exported});
}

void release_device(const Range& range) { arena_of(range.device).release(range.memory()); }

}  // namespace ciranda::fakes
