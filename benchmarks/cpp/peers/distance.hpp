// How far apart the cores of neighbouring ranks are just now.
//
// Cores of a virtual machine are threads of its host, which moves them: a cache line takes 30 to 70 ns to a core that
// shares a cache, 200 and more to another die or socket, and calls take 2 to 5 times as long there. A time says
// something only together with that distance.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/turns.hpp"

namespace peers {

enum class Distance { kUnknown, kNear, kFar };
const char* name_of(Distance distance);

// Of a window of time: what was measured at its begin and at its end; unknown where the cores moved in between.
Distance distance_of(double before_ns, double after_ns);

// Sends cache lines to and fro between each rank and the next. Threads: one a rank. Failure: exceptions.
class LineProbe {
 public:
  // `folder` is one that all ranks see, on one host.
  LineProbe(const std::string& folder, int rank, int size);
  LineProbe(const LineProbe&) = delete;
  LineProbe& operator=(const LineProbe&) = delete;
  ~LineProbe();

  // Whether each rank can have a core of its own: otherwise a line waits for the scheduler.
  static bool is_possible(int size);

  // All ranks at once. One way, in nanoseconds, the best of some tries, of this rank and the farther of its neighbours.
  // Takes some tenths of a millisecond.
  double one_way_ns();

 private:
  struct alignas(128) Line {
    std::atomic<std::uint64_t> word;
  };

  int size_;
  Line* lines_;  // line r: of ranks r and r + 1
  std::optional<ciranda::Turns> to_last_;
  std::optional<ciranda::Turns> to_next_;
};

}  // namespace peers
