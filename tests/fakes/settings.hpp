// Settings of the fake driver, from the environment. cuda.hpp explains each to those who write tests.
//
// Threads: any. Settings are read at the first use, and again by reread(), which also counts calls from zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "types.hpp"

namespace ciranda::fakes {

// The `nth` call of `call` ("*": of any) fails with `error`, or does not return.
struct Fault {
  static constexpr CUresult kHangs{-1};

  std::string call;
  std::uint64_t nth;
  CUresult error;
};

// Operation `operation` of stream `stream` does not begin before `file` exists. No file: none stands still.
struct Still {
  unsigned stream;
  std::uint64_t operation;
  std::string file;
};

enum class Ipc { kWorks, kWithinToo, kNoExport, kNoImport };

struct Settings {
  std::vector<int> gpus = {0};  // of the host, in the order in which the process has them
  int version = 13000;
  CUresult init = CUresult::kSuccess;
  std::set<std::string, std::less<>> missing;
  std::vector<Fault> call_faults;
  std::vector<Fault> run_faults;
  std::vector<Still> stills;
  std::uint64_t delay_seed = 0;  // 0: no delays
  unsigned longest_delay_us = 200;
  std::size_t longest_queue = 8;
  Ipc ipc = Ipc::kWorks;
  bool registers = true;
  std::size_t most_device_bytes = std::size_t{16} << 30;
  std::size_t most_pinned_bytes = std::size_t{16} << 30;
  bool checks = true;
  bool are_threads_apart = false;
  bool locks_contexts = true;
};

std::shared_ptr<const Settings> settings();
void reread_settings();

// Counts a call, or the run of one's operation on a stream, and returns the error that it is to fail with, if it is to
// return.
CUresult count_call(std::string_view call);
CUresult count_run(std::string_view call);
std::uint64_t n_calls();
std::uint64_t n_calls_of(std::string_view call);

}  // namespace ciranda::fakes
