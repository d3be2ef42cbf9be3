// ShmSegment: memory that several processes of one host map, taken from a tmpfs such as /dev/shm.
//
// The file has no name wherever the system allows it (O_TMPFILE), so that nothing can be left behind; others open it
// through /proc/<pid>/fd. Where that is not to be had, it has a random name, mode 0600, until unlink().
// Pages are allocated before anybody touches them: a file system that is too small is an error then, never a SIGBUS
// later. They lie in memory of the NUMA node on which whoever allocates them runs: where several processes are to write
// to a segment, each allocates its own part of it.
// Threads: as a pointer to bytes. Ownership: the mapping, and the name while there is one.
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
  // Zeroed memory. Failure says how much is needed and how much is free.
  static Result<ShmSegment> create(std::size_t n_bytes, const std::string& folder = "/dev/shm");
  // The same, where others are to allocate all but `own`; but it fails if there is no room for all of it now.
  static Result<ShmSegment> create_part(std::size_t n_bytes, std::span<const ShmExtent> own,
                                        const std::string& folder = "/dev/shm");
  // create_part(), where the file system knows no files without a name: the name is there until release_path().
  static Result<ShmSegment> create_named(std::size_t n_bytes, std::span<const ShmExtent> own,
                                         const std::string& folder);
  // What was created elsewhere, of which this process allocates its `own` part. Refuses what is not exactly that: wrong
  // size, another user's, writable by others.
  static Result<ShmSegment> open(const std::string& path, std::size_t n_bytes, std::span<const ShmExtent> own = {});
  // Memory of this process alone (and of its children).
  static Result<ShmSegment> anonymous(std::size_t n_bytes);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  std::span<std::byte> memory() const { return memory_; }
  // What others give to open(); valid until release_path().
  const std::string& path() const { return path_; }
  // -1 after release_path(), or where there is none.
  int descriptor() const { return file_.get(); }
  // What path() is for a file without a name: the number of the process that made it, and its descriptor() there.
  static std::string path_of(std::uint64_t process, std::uint64_t descriptor);
  // Everyone has opened it: take back the name, close the descriptor. The memory stays.
  void release_path();
  // The same, but the descriptor stays, for those below.
  void release_name();
  // Takes this mapping of the memory out of the others' reach: it stays at its address, with what is in it, and what
  // threads of this process write to it meanwhile is not lost. REQUIRES: there is a descriptor; it is closed. Not ok:
  // some of it is as before.
  Status make_private();
  // Gives the pages back to the system, whoever maps them, where there is a descriptor. REQUIRES: nobody needs them.
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
