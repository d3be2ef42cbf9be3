#include "report.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace ciranda::fakes {

void report(const std::string& what) { report_from_signal(what.c_str()); }

void report_from_signal(const char* what) {
  for (const char* part : {"fake cuda: ", what, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) std::abort();
  }
  std::abort();
}

}  // namespace ciranda::fakes
