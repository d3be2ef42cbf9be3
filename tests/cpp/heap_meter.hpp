// HeapMeter: how much memory the calling thread's operator new holds, and held at most, since the meter was made.
#pragma once

#include <cstddef>

namespace ciranda::testing {

class HeapMeter {
 public:
  HeapMeter();
  std::size_t peak_bytes() const;
  // Those in use now. REQUIRES: what was there before has not been freed since.
  std::size_t n_bytes() const;

 private:
  std::size_t before_;
};

}  // namespace ciranda::testing
