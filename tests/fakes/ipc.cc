#include "ipc.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/unique_fd.hpp"
#include "device_memory.hpp"
#include "settings.hpp"

namespace ciranda::fakes {
namespace {

constexpr std::uint64_t kMagic = 0x616475632d656b61;

struct Exported {
  std::uint64_t magic;
  std::uint64_t token;
  std::uint64_t offset;
  std::uint64_t n_bytes;
  int process;
  int descriptor;
};
static_assert(sizeof(Exported) <= sizeof(CUipcMemHandle));

struct Opened {
  std::shared_ptr<Range> range;
  std::size_t n_times = 0;
};

struct Imports {
  std::mutex mutex;
  std::map<std::string, Opened> by_handle;
};

Imports& imports() {
  static auto* const kept = new Imports;  // outlives the threads of the streams
  return *kept;
}

// None if the process has ended, or may not be looked into.
UniqueFd open_pages(const Exported& handle) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.descriptor);
  char target[128] = {};
  if (readlink(path.c_str(), target, sizeof target - 1) < 0) return UniqueFd();
  if (std::string(target).find(arena_name(handle.token) + " ") == std::string::npos) return UniqueFd();
  return UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

std::byte* map(const UniqueFd& pages, const Exported& handle, int protection) {
  void* at = mmap(nullptr, handle.n_bytes, protection, MAP_SHARED, pages.get(), static_cast<off_t>(handle.offset));
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

bool is_of(const Range& range, const Exported& handle) {
  if (range.kind != Kind::kDevice) return false;
  const Arena& arena = arena_of(range.device);
  return arena.descriptor() == handle.descriptor && arena.offset_of(range.memory()) == handle.offset;
}

// By which uses of the memory are compared; null: this process has no such memory.
std::shared_ptr<Shadow> shadow_of(const Exported& handle) {
  if (handle.token != process_token()) return std::make_shared<Shadow>();
  std::shared_ptr<Shadow> shadow;
  address_map().for_each([&](const Range& range) {
    if (is_of(range, handle)) shadow = range.shadow;
  });
  return shadow;
}

Import import_anew(const Exported& handle, CUdevice device) {
  const auto shadow = shadow_of(handle);
  const UniqueFd pages = open_pages(handle);
  if (shadow == nullptr || !pages.valid()) return {CUresult::kMapFailed, nullptr};
  std::byte* const memory = map(pages, handle, PROT_NONE);
  std::byte* const visible = map(pages, handle, PROT_READ | PROT_WRITE);
  if (memory == nullptr || visible == nullptr) return {CUresult::kMapFailed, nullptr};
  auto range = address_map().add({.kind = Kind::kImported,
                                  .begin = reinterpret_cast<std::uintptr_t>(memory),
                                  .n_bytes = handle.n_bytes,
                                  .visible = visible,
                                  .device = device,
                                  .origin = "cuIpcOpenMemHandle, of process " + std::to_string(handle.process),
                                  .shadow = shadow});
  return {CUresult::kSuccess, std::move(range)};
}

}  // namespace

CUipcMemHandle export_range(const Range& range) {
  const Arena& arena = arena_of(range.device);
  const Exported exported{kMagic,        process_token(), arena.offset_of(range.memory()),
                          range.n_bytes, getpid(),        arena.descriptor()};
  CUipcMemHandle handle{};
  std::memcpy(&handle, &exported, sizeof exported);
  return handle;
}

Import import_range(const CUipcMemHandle& handle, CUdevice device) {
  Exported exported;
  std::memcpy(&exported, &handle, sizeof exported);
  if (exported.magic != kMagic) return {CUresult::kInvalidValue, nullptr};
  if (exported.token == process_token() && settings()->ipc != Ipc::kWithinToo) {
    return {CUresult::kInvalidContext, nullptr};
  }
  const std::lock_guard lock(imports().mutex);
  Opened& opened = imports().by_handle[std::string(handle.reserved.begin(), handle.reserved.end())];
  if (opened.n_times == 0) {
    Import made = import_anew(exported, device);
    if (made.outcome != CUresult::kSuccess) return made;
    opened.range = std::move(made.range);
  }
  ++opened.n_times;
  return {CUresult::kSuccess, opened.range};
}

std::shared_ptr<Range> close_import(const std::shared_ptr<Range>& range) {
  const std::lock_guard lock(imports().mutex);
  for (auto& [handle, opened] : imports().by_handle) {
    if (opened.range != range) continue;
    if (--opened.n_times > 0) return nullptr;
    return std::exchange(opened.range, nullptr);
  }
  return nullptr;
}

void unmap_import(const Range& range) {
  munmap(range.memory(), range.n_bytes);
  munmap(range.visible, range.n_bytes);
}

}  // namespace ciranda::fakes
