// Moments: when a call passed from one of its stages to the next, on this rank. They are noted only for a request that
// asks for it: to read the clock takes longer than some stages.
//
// Threads: the submitting thread notes the first, the turning thread the others; read once the operation is done.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ciranda {

// In the order in which they come. A call that fails may never see some.
enum class Moment : std::uint8_t {
  kSubmitted,  // submit() was called
  kTaken,      // the engine looks at it
  kReady,      // all that the others need has been written, or is in the next frame; or it is held for its group
  kAgreed,     // this rank knows that all are to carry it out
  kDone,       // the result is there
};
inline constexpr std::size_t kMomentCount = 5;

class Moments {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void note(Moment moment) { at_[static_cast<std::size_t>(moment)] = std::chrono::steady_clock::now(); }
  // The clock's epoch if it never came.
  TimePoint operator[](Moment moment) const { return at_[static_cast<std::size_t>(moment)]; }

 private:
  std::array<TimePoint, kMomentCount> at_{};
};

}  // namespace ciranda
