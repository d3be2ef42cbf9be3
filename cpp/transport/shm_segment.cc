#include "transport/shm_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

namespace ciranda {
namespace {

std::string mebibytes(std::uint64_t n_bytes) {
  const std::uint64_t tenths = (n_bytes * 10 + (1 << 20) - 1) / (1 << 20);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

std::string path_of_own(int fd) {
  return ShmSegment::path_of(static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(fd));
}

// None if the file system does not report it.
std::optional<std::uint64_t> free_bytes(int fd) {
  struct statvfs space {};
  if (fstatvfs(fd, &space) != 0 || space.f_blocks == 0) return std::nullopt;
  return static_cast<std::uint64_t>(space.f_bavail) * space.f_bsize;
}

Status too_small(int fd, std::size_t n_bytes, const std::string& where) {
  const std::optional<std::uint64_t> n_free = free_bytes(fd);
  return Status::internal(where + " is too small: " + mebibytes(n_bytes) + " are needed, " +
                          (n_free ? mebibytes(*n_free) + " are free" : "not so many are free"));
}

Status allocate(int fd, const ShmExtent& extent, const std::string& where) {
  if (extent.n_bytes == 0) return {};
  int error = 0;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(extent.offset), static_cast<off_t>(extent.n_bytes));
  } while (error == EINTR);
  if (error == 0) return {};
  if (error == ENOSPC) return too_small(fd, extent.n_bytes, where);
  return Status::internal("cannot allocate " + mebibytes(extent.n_bytes) + " in " + where + ": " +
                          std::generic_category().message(error));
}

Status allocate_all(int fd, std::span<const ShmExtent> extents, const std::string& where) {
  for (const ShmExtent& each : extents) {
    if (Status allocated = allocate(fd, each, where); !allocated.ok()) return allocated;
  }
  return {};
}

// MADV_POPULATE_WRITE, since Linux 5.14; the system headers may be older.
constexpr int kPopulateWrite = 23;

// Writes each page's present contents, which another thread may change at any time.
void write_to_each_page(std::span<std::byte> memory) {
  const auto n_page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < memory.size(); at += n_page_bytes) {
    const std::atomic_ref<std::byte> byte(memory[at]);
    std::byte value = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(value, value)) {
    }
  }
}

}  // namespace

Result<ShmSegment> ShmSegment::create(std::size_t n_bytes, const std::string& folder) {
  return create_part(n_bytes, std::array{ShmExtent{0, n_bytes}}, folder);
}

Result<ShmSegment> ShmSegment::create_part(std::size_t n_bytes, std::span<const ShmExtent> own,
                                           const std::string& folder) {
  ShmSegment segment;
  segment.file_.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (segment.file_.valid()) {
    segment.path_ = path_of_own(segment.file_.get());
    return filled(std::move(segment), n_bytes, own, folder);
  }
  return create_named(n_bytes, own, folder);
}

Result<ShmSegment> ShmSegment::create_named(std::size_t n_bytes, std::span<const ShmExtent> own,
                                            const std::string& folder) {
  ShmSegment segment;
  std::string path = folder + "/ciranda-XXXXXX";
  segment.file_.reset(mkostemp(path.data(), O_CLOEXEC));
  if (!segment.file_.valid()) return Status::from_errno("cannot make a file in " + folder);
  segment.path_ = std::move(path);
  segment.has_name_ = true;
  return filled(std::move(segment), n_bytes, own, folder);
}

std::string ShmSegment::path_of(std::uint64_t process, std::uint64_t descriptor) {
  return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
}

Result<ShmSegment> ShmSegment::filled(ShmSegment segment, std::size_t n_bytes, std::span<const ShmExtent> own,
                                      const std::string& folder) {
  const int fd = segment.file_.get();
  if (const auto n_free = free_bytes(fd); n_free && *n_free < n_bytes) return too_small(fd, n_bytes, folder);
  if (ftruncate(fd, static_cast<off_t>(n_bytes)) != 0) {
    return Status::from_errno("cannot make a file of " + mebibytes(n_bytes) + " in " + folder);
  }
  if (Status allocated = allocate_all(fd, own, folder); !allocated.ok()) return allocated;
  if (Status mapped = segment.map(segment.file_.get(), n_bytes); !mapped.ok()) return mapped;
  return segment;
}

Result<ShmSegment> ShmSegment::open(const std::string& path, std::size_t n_bytes, std::span<const ShmExtent> own) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Status::from_errno("cannot open " + path);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return Status::from_errno("cannot look at " + path);
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0077) != 0 ||
      info.st_size != static_cast<off_t>(n_bytes)) {
    return Status::internal(path + " is not the expected memory");
  }
  if (Status allocated = allocate_all(file.get(), own, "the file system of " + path); !allocated.ok()) return allocated;
  ShmSegment segment;
  if (Status mapped = segment.map(file.get(), n_bytes); !mapped.ok()) return mapped;
  return segment;
}

Result<ShmSegment> ShmSegment::anonymous(std::size_t n_bytes) {
  ShmSegment segment;
  if (Status mapped = segment.map(-1, n_bytes); !mapped.ok()) return mapped;
  return segment;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      has_name_(std::exchange(other.has_name_, false)) {}

ShmSegment::~ShmSegment() {
  release_path();
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

void ShmSegment::release_path() {
  release_name();
  file_.reset();
}

void ShmSegment::release_name() {
  if (std::exchange(has_name_, false)) unlink(path_.c_str());
  path_.clear();
}

// For this process's threads, the kernel replaces the whole mapping at once. In the new mapping, a page becomes private
// at the first write, with its contents at that time.
Status ShmSegment::make_private() {
  constexpr int kFlags = MAP_PRIVATE | MAP_FIXED;
  if (mmap(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE, kFlags, file_.get(), 0) == MAP_FAILED) {
    return Status::from_errno("cannot map " + mebibytes(memory_.size()) + " of private memory");
  }
  file_.reset();
  if (madvise(memory_.data(), memory_.size(), kPopulateWrite) == 0) return {};
  if (errno != EINVAL) return Status::from_errno("cannot get " + mebibytes(memory_.size()) + " of private memory");
  write_to_each_page(memory_);
  return {};
}

void ShmSegment::discard() {
  if (!file_.valid()) return;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(memory_.size()));
}

Status ShmSegment::map(int fd, std::size_t n_bytes) {
  const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* address = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) return Status::from_errno("cannot map " + mebibytes(n_bytes) + " of shared memory");
  memory_ = {static_cast<std::byte*>(address), n_bytes};
  return {};
}

}  // namespace ciranda
