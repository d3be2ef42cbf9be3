// AddressMap: what lies where among the addresses that streams may use: device memory, pinned host memory, and memory
// of other processes.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>

#include "host_pages.hpp"
#include "shadow.hpp"

namespace ciranda::fakes {

enum class Kind { kDevice, kPinned, kRegistered, kImported };

struct Range {
  Kind kind;
  std::uintptr_t begin;
  std::size_t n_bytes;
  std::byte* visible;  // the same memory as streams use it
  int device;          // number in the process
  std::string origin;  // the call that made it
  bool can_be_exported = false;
  bool has_ended = false;
  std::uint64_t id = 0;
  std::shared_ptr<Shadow> shadow = std::make_shared<Shadow>();
  std::unique_ptr<HostPages> pages = nullptr;  // host memory with a second mapping only

  bool is_host() const { return kind == Kind::kPinned || kind == Kind::kRegistered; }
  std::uintptr_t end() const { return begin + n_bytes; }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(begin); }
};

class AddressMap {
 public:
  // Gives the range its id.
  std::shared_ptr<Range> add(Range range);
  // Nothing may use the range from now on, but for what was queued before. `how` is told of later uses.
  void end(Range& range, std::string how);
  // REQUIRES: that the range has ended, and all that was queued before.
  void remove(const Range& range);

  // Returns null if nothing is there, or what was has ended.
  std::shared_ptr<Range> find(const void* address) const;
  // As find(), for a signal handler: null also if another thread is at it.
  std::shared_ptr<Range> try_find(const void* address) const;
  // How the memory at `address` ended, if it did.
  std::optional<std::string> end_of(const void* address) const;
  // Where operations of streams find the memory at `address`.
  std::byte* in_kernel(const void* address) const;

  template <typename Function>
  void for_each(const Function& function) const {
    const std::shared_lock lock(mutex_);
    for (const auto& [begin, range] : ranges_) function(*range);
  }

 private:
  struct Gone {
    std::uintptr_t end;
    std::string how;
  };

  std::shared_ptr<Range> find_any(std::uintptr_t address) const;
  std::shared_ptr<Range> find_live(const void* address) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<Range>> ranges_;
  std::map<std::uintptr_t, Gone> gone_;
  std::uint64_t n_ranges_ = 0;
};

// The one of the process.
AddressMap& address_map();

}  // namespace ciranda::fakes
