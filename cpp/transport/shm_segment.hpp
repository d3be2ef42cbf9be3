// ShmSegment: memory that several processes of one host map, taken from a tmpfs such as /dev/shm.
//
// The file has no name if the system allows that (O_TMPFILE), so nothing can be left behind; other processes open it
// through /proc/<pid>/fd. Otherwise it has a random name, mode 0600, until unlink(). Pages are allocated before their
// first use, so a file system that is too small is an error then, not a SIGBUS later. A page lies on the NUMA node of
// the process that allocates it. So if several processes write to a segment, each allocates its own part. Called by
// LaneArena, SharedRegions, shared_memory.cc, SocketMesh, join_world() and probe_shared_memory(). Threads: as a pointer
// to bytes.
// Ownership: the mapping, and the name while there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace ciranda {

struct ShmExtent {
  std::size_t offset = 0;
  std::size_t n_bytes = 0;
};

class ShmSegment {
 public:
  // Zeroed memory. The error gives the needed and the free size.
  static Result<ShmSegment> create(std::size_t n_bytes, const std::string& folder = "/dev/shm");
  // As create(), but allocates only `own`: others must allocate the rest. Fails if there is no room for all of it now.
  static Result<ShmSegment> create_part(std::size_t n_bytes, std::span<const ShmExtent> own,
                                        const std::string& folder = "/dev/shm");
  // As create_part(), for file systems without O_TMPFILE: the file has a name until release_path().
  static Result<ShmSegment> create_named(std::size_t n_bytes, std::span<const ShmExtent> own,
                                         const std::string& folder);
  // Maps a segment that another process has created, and allocates the `own` part. Refuses a file of another size, of
  // another user, or accessible to others.
  static Result<ShmSegment> open(const std::string& path, std::size_t n_bytes, std::span<const ShmExtent> own = {});
  // Memory of this process and its children only.
  static Result<ShmSegment> anonymous(std::size_t n_bytes);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  std::span<std::byte> memory() const { return memory_; }
  // The path that others pass to open(); valid until release_path().
  const std::string& path() const { return path_; }
  // -1 after release_path(), or if there is none.
  int descriptor() const { return file_.get(); }
  // The path() of a file without a name: from the id of the process that created it, and its descriptor() there.
  static std::string path_of(std::uint64_t process, std::uint64_t descriptor);
  // Removes the name and closes the descriptor, once all others have opened the segment. The memory stays.
  void release_path();
  // As release_path(), but keeps the descriptor, which the functions below need.
  void release_name();
  // Makes this mapping private to the process, with the same address and contents. Concurrent writes of this process's
  // threads are not lost. REQUIRES: there is a descriptor; it is closed. Not ok: some pages may still be shared.
  Status make_private();
  // Returns the pages to the system even if other processes map them, if there is a descriptor. REQUIRES: no process
  // needs the contents.
  void discard();

 private:
  ShmSegment() = default;
  static Result<ShmSegment> filled(ShmSegment segment, std::size_t n_bytes, std::span<const ShmExtent> own,
                                   const std::string& folder);
  Status map(int fd, std::size_t n_bytes);

  std::span<std::byte> memory_;
  UniqueFd file_;
  std::string path_;
  bool has_name_ = false;
};

}  // namespace ciranda
