#include "report.hpp"

#include <unistd.h>

#include <cstdlib>

namespace ciranda::fakes {

void report(const std::string& what) {
  const std::string line = "fake cuda: " + what + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  std::abort();
}

}  // namespace ciranda::fakes
