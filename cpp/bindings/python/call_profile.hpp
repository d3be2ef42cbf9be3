// CallProfile: when each blocking call passed from one stage to the next, kept while somebody asks for it. Needs the
// GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "complete/moments.hpp"

namespace ciranda::python {

class CallProfile {
 public:
  bool is_kept() const { return is_kept_; }
  void keep() { is_kept_ = true; }

  // A call whose wait has just returned.
  void add(const Moments& moments) {
    Call call{};
    for (std::size_t i = 0; i < kMomentCount; ++i) call[i] = nanoseconds(moments[static_cast<Moment>(i)]);
    call.back() = nanoseconds(Moments::TimePoint::clock::now());
    calls_.push_back(call);
  }

  // A tuple for each call, of nanoseconds on the clock of time.monotonic_ns(): the moments in their order, and when the
  // wait had returned. Keeps no more.
  nanobind::list take() {
    is_kept_ = false;
    nanobind::list taken;
    for (const Call& c : std::exchange(calls_, {}))
      taken.append(nanobind::make_tuple(c[0], c[1], c[2], c[3], c[4], c[5]));
    return taken;
  }

 private:
  using Call = std::array<std::int64_t, kMomentCount + 1>;

  static std::int64_t nanoseconds(Moments::TimePoint when) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  }

  bool is_kept_ = false;
  std::vector<Call> calls_;
};

}  // namespace ciranda::python
