#include "distance.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/pair_costs.hpp"

namespace peers {
namespace {

using ciranda::Turns;

constexpr std::chrono::seconds kMostWaiting{10};

std::size_t bytes_of(int size, std::size_t line) { return static_cast<std::size_t>(size) * line; }

}  // namespace

const char* name_of(Distance distance) {
  switch (distance) {
    case Distance::kUnknown: return "unknown";
    case Distance::kNear: return "near";
    case Distance::kFar: return "far";
  }
  return "";
}

Distance distance_of(double before_ns, double after_ns) {
  const ciranda::Distance before = ciranda::distance_of(before_ns);
  if (ciranda::distance_of(after_ns) != before) return Distance::kUnknown;
  return before == ciranda::Distance::kNear ? Distance::kNear : Distance::kFar;
}

LineProbe::LineProbe(const std::string& folder, int rank, int size) : size_(size) {
  const int fd = open((folder + "/lines").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::size_t n_bytes = bytes_of(size, sizeof(Line));
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(n_bytes)) != 0) throw std::runtime_error("no file for cache lines");
  void* mapped = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) throw std::runtime_error("no shared memory for cache lines");
  lines_ = static_cast<Line*>(mapped);
  if (rank > 0) to_last_.emplace(lines_[rank - 1].word, Turns::Side::kFirst);
  if (rank + 1 < size) to_next_.emplace(lines_[rank].word, Turns::Side::kSecond);
}

LineProbe::~LineProbe() { munmap(lines_, bytes_of(size_, sizeof(Line))); }

bool LineProbe::is_possible(int size) {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) >= size;
}

double LineProbe::one_way_ns() {
  double slowest = 0;
  for (std::optional<Turns>* each : {&to_last_, &to_next_}) {
    if (!*each) continue;
    const auto found = (*each)->one_way_ns(Turns::Clock::now() + kMostWaiting);
    if (!found) throw std::runtime_error("a neighbouring rank did not take part in measuring cache lines");
    slowest = std::max(slowest, *found);
  }
  return slowest;
}

}  // namespace peers
