#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace ciranda::fakes {
namespace {

[[noreturn]] void give_up(const char* call) {
  std::perror(call);
  std::abort();
}

}  // namespace

Segment::Segment(const cuda::ncclUniqueId& id, int n_ranks) : name_(id.internal.data()), n_ranks_(n_ranks) {
  if (n_ranks > kMostRanks) give_up("fake NCCL: so many ranks are not imitated");
  const auto n_bytes = static_cast<std::size_t>(n_ranks) * sizeof(Part);
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(n_bytes)) != 0) give_up("fake NCCL: shm_open");
  void* const mapped = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) give_up("fake NCCL: mmap");
  parts_ = static_cast<Part*>(mapped);  // zeros are what the parts begin as
}

Segment::~Segment() { munmap(parts_, static_cast<std::size_t>(n_ranks_) * sizeof(Part)); }

void Segment::forget_name() { shm_unlink(name_.c_str()); }

}  // namespace ciranda::fakes
