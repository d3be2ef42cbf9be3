// HeapMeter: how much memory the calling thread's operator new held at most since the meter was made.
#pragma once

#include <cstddef>

namespace ciranda::testing {

class HeapMeter {
 public:
  HeapMeter();
  std::size_t peak_bytes() const;

 private:
  std::size_t before_;
};

}  // namespace ciranda::testing
