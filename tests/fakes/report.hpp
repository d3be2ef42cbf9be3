// report: ends the process with a message, as the fake driver does with a program that breaks a rule of CUDA's.
#pragma once

#include <string>

namespace ciranda::fakes {

// Writes "fake cuda: ..." to stderr and aborts.
[[noreturn]] void report(const std::string& what);

}  // namespace ciranda::fakes
