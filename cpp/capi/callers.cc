#include "capi/callers.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "capi/sleepers.hpp"

namespace ciranda::capi {
namespace {

// Of the process, as callers know of each other by nothing else.
std::atomic<InterpretersMayCall> interpreter{nullptr};
std::atomic<bool> has_native_callers{false};

// Whether the thread runs, or waits for a device: what it does next is its own affair. One that has ended does nothing.
bool is_running(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t at = text.rfind(')');  // behind its name, which may have any bytes
  return at + 2 >= text.size() || text[at + 2] == 'R' || text[at + 2] == 'D';
}

// Whether any thread but this one does.
bool are_others_running() {
  int n_running = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (is_running(task.path())) ++n_running;
  }
  return error || n_running > 1;
}

// Where an interpreter makes all calls, other threads are libraries' own, which make none; but one that runs just now
// may be on its way into the interpreter. At least its main thread waits.
bool interpreters_may_call(std::span<const WaitingThread> waiting) {
  const InterpretersMayCall ask = interpreter.load();
  if (ask == nullptr || has_native_callers.load() || waiting.empty()) return true;
  return are_others_running() || ask(waiting);
}

// What the thread has found at first.
thread_local bool do_all_sleep = false;

}  // namespace

// Only sleepers may have been woken since by a call that was completed: threads that wait in calls are counted
// elsewhere (LongWaits), and an interpreter's others do not depend on any.
bool others_may_call(std::span<const WaitingThread> waiting, Asked asked) {
  if (asked == Asked::kWithLock) return do_all_sleep && !do_still_sleep(waiting);
  do_all_sleep = do_others_sleep(waiting, interpreter.load() != nullptr);
  return !do_all_sleep && interpreters_may_call(waiting);
}

void ask_interpreter(InterpretersMayCall ask) { interpreter.store(ask); }

void note_native_callers() { has_native_callers.store(true); }

}  // namespace ciranda::capi
