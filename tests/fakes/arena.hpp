// Arena: memory in pages of a memfd that are mapped twice: once as the program has it, and once as streams use it.
// Device memory has no access in the first mapping, so that a thread of the host that touches it ends the process.
//
// Addresses are given out again only when all others have been, so that stale ones are noticed. Threads: any.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "base/unique_fd.hpp"

namespace ciranda::fakes {

class Arena {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 30;  // of addresses

  // `host_protection`: of the first mapping.
  Arena(const std::string& name, int host_protection);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns null if more than `most_bytes` would be in use. The memory begins with rubbish.
  std::byte* allocate(std::size_t n_bytes, std::size_t most_bytes);
  // Overwrites its beginning, and gives the rest back to the system.
  void release(std::byte* memory);

  bool has(const void* address) const;
  std::byte* in_kernel(std::byte* memory) const { return visible_ + (memory - memory_); }

  int descriptor() const { return pages_.get(); }
  std::size_t offset_of(const std::byte* memory) const { return static_cast<std::size_t>(memory - memory_); }

 private:
  std::size_t find_gap(std::size_t n_bytes) const;

  UniqueFd pages_;
  std::byte* memory_;
  std::byte* visible_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> used_;  // where, and how many bytes
  std::size_t n_used_ = 0;
  std::size_t next_ = 0;
};

}  // namespace ciranda::fakes
