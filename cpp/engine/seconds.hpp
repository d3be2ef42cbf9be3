// seconds: a setting as a duration.
#pragma once

#include <chrono>

namespace ciranda {

inline std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

}  // namespace ciranda
