#include "capi/kept_slot.hpp"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

namespace ciranda::capi {
namespace {

constexpr std::string_view kProcesses = "/proc/";

// The PID of a path "/proc/PID/fd/N"; 0 for any other path.
pid_t process_in(std::string_view path) {
  pid_t process = 0;
  if (path.starts_with(kProcesses))
    std::from_chars(path.data() + kProcesses.size(), path.data() + path.size(), process);
  return process;
}

// Returns "RANK SLOT", or an empty text if no process keeps it there any more.
std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string slot_of(const GetEnv& get_env) {
  constexpr std::array kNames{"CIRANDA_STORE", "CIRANDA_JOB",  "CIRANDA_RANK",
                              "HOROVOD_RANK",  "CIRANDA_SIZE", "HOROVOD_SIZE"};
  if (get_env(kNames.front()).value_or("").empty()) return {};
  std::string slot;
  for (const std::string name : kNames) slot += name + "=" + get_env(name).value_or("") + " ";
  return slot;
}

std::string why_taken(const std::string& slot) {
  const std::string path = environment()(kTakenBy).value_or("");
  const pid_t keeper = process_in(path);
  if (slot.empty() || keeper == 0 || keeper == getpid()) return {};
  const std::string kept = read_all(path);
  const std::size_t space = kept.find(' ');
  if (space == std::string::npos || kept.substr(space + 1) != slot) return {};
  return "this program was started by rank " + kept.substr(0, space) + " (process " + std::to_string(keeper) +
         "), which is in the world itself: both cannot be one rank. For a world of its own start it with 'ciranda run "
         "-np 1 COMMAND'. If it is to be the rank, let that call shutdown() first, or start it without one variable: "
         "'env -u " +
         kTakenBy + " COMMAND'";
}

// If the file cannot be created, the slot is not kept: a lack of descriptors or memory will show elsewhere.
KeptSlot::KeptSlot(int rank, const std::string& slot) : file_(memfd_create("ciranda-slot", MFD_CLOEXEC)) {
  const std::string text = std::to_string(rank) + " " + slot;
  const bool is_kept = file_.valid() && write(file_.get(), text.data(), text.size()) == std::ssize(text);
  if (is_kept) {
    setenv(kTakenBy, path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe): as the header says
  } else {
    file_.reset();
  }
}

KeptSlot& KeptSlot::operator=(KeptSlot&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  return *this;
}

std::string KeptSlot::path() const {
  if (!file_.valid()) return {};
  return std::string(kProcesses) + std::to_string(getpid()) + "/fd/" + std::to_string(file_.get());
}

void KeptSlot::release() {
  if (!file_.valid()) return;
  if (environment()(kTakenBy) == path()) unsetenv(kTakenBy);  // NOLINT(concurrency-mt-unsafe): as the header says
  file_.reset();
}

}  // namespace ciranda::capi
