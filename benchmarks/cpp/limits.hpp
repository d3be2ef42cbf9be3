// Declarations shared by the files of the program limits (see limits.cc).
#pragma once

#include <chrono>
#include <vector>

namespace limits {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin);

std::vector<int> usable_cpus();
void stay_on(int cpu);  // pins this thread

// Each function prints lines of JSON. print_cache_lines() takes `seconds` for each line.
void print_cache_lines(const std::vector<int>& cpus, double seconds);
void print_handovers(const std::vector<int>& cpus);
void print_network(const std::vector<int>& cpus);

}  // namespace limits
