// report: ends the process with a message, as the fake driver does with a program that breaks a rule of CUDA's.
#pragma once

#include <string>

namespace ciranda::fakes {

// Writes "fake cuda: ..." to stderr and aborts.
[[noreturn]] void report(const std::string& what);

// As report(), without an allocation.
[[noreturn]] void report_from_signal(const char* what);

}  // namespace ciranda::fakes
