// The current distance between the cores of neighbouring ranks.
//
// The cores of a virtual machine are threads of its host, which moves them. A cache line takes 30 to 70 ns to a core
// that shares a cache, but 200 ns and more to another die or socket, where calls take 2 to 5 times as long. So a
// measured time is meaningful only together with the distance.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/turns.hpp"

namespace peers {

enum class Distance { kUnknown, kNear, kFar };
const char* name_of(Distance distance);

// The distance in a window of time, from the latencies measured at its begin and its end; kUnknown if these differ,
// because cores were moved in between.
Distance distance_of(double before_ns, double after_ns);

// Sends cache lines to and fro between each rank and the next. Threads: one per rank. Failure: exceptions.
class LineProbe {
 public:
  // All ranks are on one host and pass the same `folder`.
  LineProbe(const std::string& folder, int rank, int size);
  LineProbe(const LineProbe&) = delete;
  LineProbe& operator=(const LineProbe&) = delete;
  ~LineProbe();

  // True if each rank can have a core of its own. Otherwise the time of a line would include waits for the scheduler.
  static bool is_possible(int size);

  // Measures the time of a line from this rank to the farther of its neighbours, in nanoseconds: one way, the best of
  // some tries. All ranks call it at the same time. Takes some tenths of a millisecond.
  double one_way_ns();

 private:
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word;
  };

  int size_;
  Line* lines_;  // lines_[r] is shared by ranks r and r + 1
  std::optional<ciranda::Turns> to_last_;
  std::optional<ciranda::Turns> to_next_;
};

}  // namespace peers
