#include "progress/short_slices.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ciranda {
namespace {

// The shortest time slice that Linux accepts. Without this, a busy thread has some milliseconds.
constexpr std::uint64_t kSliceNs = 100'000;

// The kernel's sched_attr. Older C libraries do not declare it, and the kernel's header conflicts with all of them.
struct SchedulingAttributes {
  std::uint32_t n_bytes = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

}  // namespace

void take_short_slices() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.slice_ns = kSliceNs;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace ciranda
