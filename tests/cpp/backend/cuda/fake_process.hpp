// Processes in which libcuda.so.1 is the fake of tests/fakes: each is this test program once more, which finds the fake
// by LD_LIBRARY_PATH, as it would the real driver, and has a driver of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ciranda::cuda::testing {

struct Variable {
  std::string name;
  std::string value;
};
using Environment = std::vector<Variable>;

using Scenario = std::function<void()>;

// In such a process nothing that `scenario` expects fails.
void expect_passes(const Environment& environment, const Scenario& scenario);

// Such a process aborts, and writes what `said` matches (a regular expression).
void expect_aborts(const Environment& environment, const Scenario& scenario, const std::string& said);

}  // namespace ciranda::cuda::testing
