#include "capi/callers.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/own_thread.hpp"

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

struct Threads {
  int n_all = 0;
  int n_running = 0;  // this one included
};

Threads threads() {
  Threads found;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    ++found.n_all;
    if (is_running(task.path())) ++found.n_running;
  }
  if (error) found.n_all = found.n_running = 1 << 20;  // who knows
  return found;
}

int n_different(std::span<const pthread_t> threads) {
  int n = 0;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const auto is_same = [&](pthread_t other) { return pthread_equal(other, threads[i]) != 0; };
    if (std::none_of(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(i), is_same)) ++n;
  }
  return n;
}

}  // namespace

// Where an interpreter makes all calls, other threads are libraries' own, which make none; but one that runs just now
// may be on its way into the interpreter.
bool others_may_call(std::span<const pthread_t> waiting) {
  const InterpretersMayCall ask = interpreter.load();
  const Threads now = threads();
  if (ask == nullptr || has_native_callers.load()) {
    if (now.n_all > n_different(waiting) + OwnThread::count()) return true;
  } else if (now.n_running > 1) {
    return true;
  }
  return ask != nullptr && ask(waiting);
}

void ask_interpreter(InterpretersMayCall ask) { interpreter.store(ask); }

void note_native_callers() { has_native_callers.store(true); }

}  // namespace ciranda::capi
