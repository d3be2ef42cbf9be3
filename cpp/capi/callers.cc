#include "capi/callers.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "capi/sleepers.hpp"

namespace ciranda::capi {
namespace {

// One for the process: nothing else connects its callers.
std::atomic<InterpretersMayCall> interpreter{nullptr};
std::atomic<bool> has_native_callers{false};

// Whether the thread runs, or waits for a device: it may do anything next. False if the thread has ended.
bool is_running(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t at = text.rfind(')');  // the end of the name, which may contain any bytes
  return at + 2 >= text.size() || text[at + 2] == 'R' || text[at + 2] == 'D';
}

// Whether any thread but this one runs.
bool are_others_running() {
  int n_running = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (is_running(task.path())) ++n_running;
  }
  return error || n_running > 1;
}

// If an interpreter makes all calls, other threads belong to libraries and make none; but a thread that runs now may be
// about to enter the interpreter. If no thread waits, the interpreter's main thread may call.
bool interpreters_may_call(std::span<const WaitingThread> waiting) {
  const InterpretersMayCall ask = interpreter.load();
  if (ask == nullptr || has_native_callers.load() || waiting.empty()) return true;
  return are_others_running() || ask(waiting);
}

// The result of this thread's last call with Asked::kAtFirst: whether all others sleep.
thread_local bool do_all_sleep = false;

}  // namespace

// With the lock, only sleepers are checked again: a completed call may have woken them. Threads that wait in calls are
// counted elsewhere (LongWaits), and the interpreter's other threads depend on no call.
bool others_may_call(std::span<const WaitingThread> waiting, Asked asked) {
  if (asked == Asked::kWithLock) return do_all_sleep && !do_still_sleep(waiting);
  do_all_sleep = do_others_sleep(waiting, interpreter.load() != nullptr);
  return !do_all_sleep && interpreters_may_call(waiting);
}

void ask_interpreter(InterpretersMayCall ask) { interpreter.store(ask); }

void note_native_callers() { has_native_callers.store(true); }

}  // namespace ciranda::capi
