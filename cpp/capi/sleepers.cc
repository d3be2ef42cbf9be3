#include "capi/sleepers.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/own_thread.hpp"

namespace ciranda::capi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLongestLook = std::chrono::seconds(3);  // between two checks of a caller that checks each second
constexpr auto kStillFor = std::chrono::seconds(30);

// How often each thread has been given a core, by the thread's number.
using Runs = std::map<pid_t, std::uint64_t>;

struct Threads {
  Runs asleep;
  Runs napping;
};

// The number of a system call, and its arguments.
using SystemCall = std::array<std::uint64_t, 7>;

// None if the thread runs, or if the system does not say.
std::optional<SystemCall> system_call(const std::filesystem::path& task) {
  std::ifstream file(task / "syscall");
  SystemCall call{};
  std::string word;
  for (std::uint64_t& each : call) {
    if (!(file >> word)) return std::nullopt;
    const bool is_hexadecimal = word.starts_with("0x");
    const char* const begin = word.data() + (is_hexadecimal ? 2 : 0);
    const char* const end = word.data() + word.size();
    if (std::from_chars(begin, end, each, is_hexadecimal ? 16 : 10).ptr != end) return std::nullopt;
  }
  return call;
}

int futex_command(const SystemCall& call) { return static_cast<int>(call[2]) & FUTEX_CMD_MASK; }

bool is_own_futex(const SystemCall& call) { return call[0] == SYS_futex && (call[2] & FUTEX_PRIVATE_FLAG) != 0; }

// Whether only a thread of this process can end the call.
bool is_sleep(const SystemCall& call) {
  const bool has_end = call[4] != 0;
  return is_own_futex(call) && !has_end &&
         (futex_command(call) == FUTEX_WAIT || futex_command(call) == FUTEX_WAIT_BITSET);
}

// Whether the call sleeps for a relative time, as C and C++ do (nanosleep, std::this_thread::sleep_for, a condition of
// Abseil). Python's sleeps and waits have an absolute end.
bool is_nap(const SystemCall& call) {
#ifdef SYS_nanosleep
  if (call[0] == SYS_nanosleep) return true;
#endif
  if (call[0] == SYS_clock_nanosleep) return call[1] == CLOCK_REALTIME && call[2] == 0;
  return is_own_futex(call) && futex_command(call) == FUTEX_WAIT;
}

std::optional<std::uint64_t> n_runs(const std::filesystem::path& task) {
  std::ifstream file(task / "schedstat");
  std::uint64_t had_ns = 0;
  std::uint64_t waited_ns = 0;
  std::uint64_t n = 0;
  if (!(file >> had_ns >> waited_ns >> n)) return std::nullopt;
  return n;
}

bool is_one_of(std::span<const WaitingThread> waiting, pid_t id) {
  return std::any_of(waiting.begin(), waiting.end(), [id](const WaitingThread& each) { return each.id == id; });
}

// Finds the threads that sleep or nap, except the engine's and those in `waiting`. None if another thread is awake.
std::optional<Threads> look(std::span<const WaitingThread> waiting) {
  const std::vector<pid_t> own = OwnThread::all();
  Threads found;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const pid_t id = static_cast<pid_t>(std::stol(task.path().filename()));
    if (is_one_of(waiting, id) || std::find(own.begin(), own.end(), id) != own.end()) continue;
    const auto before = n_runs(task.path());
    const auto call = system_call(task.path());
    if (!before || !call || (!is_sleep(*call) && !is_nap(*call))) {
      if (!std::filesystem::exists(task.path())) continue;  // the thread has ended
      return std::nullopt;
    }
    (is_sleep(*call) ? found.asleep : found.napping).emplace(id, *before);
  }
  if (error) return std::nullopt;
  return found;
}

std::uint64_t n_runs_of(const Runs& runs, pid_t id) {
  const auto found = runs.find(id);
  return found == runs.end() ? 0 : found->second;
}

// Since when no thread has done more than nap, and how often each had run by then.
class Stillness {
 public:
  // Whether this has lasted for long: no thread was created, the main thread has not run, and all threads together have
  // run less than once a second.
  bool is_long_after(const Threads& now) {
    const std::lock_guard lock(mutex_);
    Runs runs = now.asleep;
    runs.insert(now.napping.begin(), now.napping.end());
    const Clock::time_point time = Clock::now();
    const bool goes_on = time - last_look_ < kLongestLook && goes_on_with(runs, time - began_);
    last_look_ = time;
    if (!goes_on) {
      since_ = std::move(runs);
      began_ = time;
    }
    return goes_on && time - began_ >= kStillFor;
  }

 private:
  bool goes_on_with(const Runs& runs, Clock::duration since) const {
    const pid_t main = getpid();
    if (n_runs_of(runs, main) != n_runs_of(since_, main)) return false;
    std::uint64_t n_more = 0;
    for (const auto& [id, n] : runs) {
      const auto before = since_.find(id);
      if (before == since_.end()) return false;
      n_more += n - before->second;
    }
    return n_more <= static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::seconds>(since).count());
  }

  std::mutex mutex_;
  Runs since_;
  Clock::time_point began_;
  Clock::time_point last_look_;
};

Stillness stillness;

thread_local Runs seen_asleep;

}  // namespace

bool do_others_sleep(std::span<const WaitingThread> waiting, bool may_nap) {
  auto found = look(waiting);
  if (!found || (!may_nap && !found->napping.empty())) return false;
  const bool do_sleep = found->napping.empty() || stillness.is_long_after(*found);
  seen_asleep = std::move(found->asleep);
  return do_sleep;
}

bool do_still_sleep(std::span<const WaitingThread> waiting) {
  const auto found = look(waiting);
  return found && found->asleep == seen_asleep;
}

}  // namespace ciranda::capi
