#include "observe/page_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

namespace ciranda {
namespace {

// Another file may have the name of the page by mistake: it must not be overwritten.
bool is_page(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (static_cast<std::size_t>(status.st_size) != sizeof(CounterPage)) return false;
  std::uint64_t magic = 1;
  if (::pread(fd, &magic, sizeof magic, 0) != sizeof magic) return false;
  return magic == 0 || magic == kPageMagic;
}

// The lock lasts while any process has the descriptor, and a child may have inherited it. So the destructor unlocks the
// file.
UniqueFd open_page(const std::string& path) {
  if (path.empty()) return {};
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid() || !is_page(file.get()) || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return file;
}

void* map(int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  return ::mmap(nullptr, sizeof(CounterPage), PROT_READ | PROT_WRITE, flags, fd, 0);
}

}  // namespace

PageMemory::PageMemory(const std::string& path) : file_(open_page(path)) {
  void* memory = map(file_.get());
  if (memory == MAP_FAILED && file_.valid()) {
    file_.reset();
    memory = map(-1);
  }
  if (memory == MAP_FAILED) throw std::bad_alloc();
  page_ = static_cast<CounterPage*>(memory);  // all of its bytes are those of some counters: 0, or of an earlier world
}

PageMemory::~PageMemory() {
  ::munmap(page_, sizeof(CounterPage));
  if (file_.valid()) ::flock(file_.get(), LOCK_UN);
}

}  // namespace ciranda
