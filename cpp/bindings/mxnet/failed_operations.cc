#include "bindings/mxnet/failed_operations.hpp"

#include <chrono>
#include <ciranda/native/call.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ciranda::mxnet {

namespace {

using std::chrono::steady_clock;

constexpr std::int32_t kOnTheWorker = 0;  // mxnet::FnProperty::kNormal
constexpr std::chrono::seconds kMostToWaitForTheLast{1};
constexpr std::chrono::microseconds kPause{100};

}  // namespace

FailedOperations& failed_operations() {
  static FailedOperations* const it = new FailedOperations;  // never freed: calls may fail while the process ends
  return *it;
}

void FailedOperations::add(const OnComplete& done, std::string text, bool are_all_failing) {
  {
    const std::lock_guard guard(lock_);
    waiting_.push_back({done, std::move(text)});
    if (are_all_failing) are_all_failing_ = true;
    if (std::exchange(is_pushed_, true)) return;
  }
  if (is_naive() || !push()) tell();
}

bool FailedOperations::push() {
  return mx().EnginePushAsyncND(&FailedOperations::run, this, &FailedOperations::discard, &kCpu, nullptr, 0, nullptr, 0,
                                &kOnTheWorker, 0, "Ciranda", false) == 0;
}

void FailedOperations::run(void* /*run_context*/, void* done, void* self) {
  const OnComplete its_own = *static_cast<const OnComplete*>(done);
  static_cast<FailedOperations*>(self)->tell_all();
  its_own.callback(its_own.engine, its_own.operation, nullptr);
}

// Called without run() when MXNet's engine shuts down.
void FailedOperations::discard(void* self) { static_cast<FailedOperations*>(self)->tell(); }

void FailedOperations::tell_all() {
  const auto latest = steady_clock::now() + kMostToWaitForTheLast;
  tell();
  while (are_all_failing_ && native::live_calls() > 0 && steady_clock::now() < latest) {
    std::this_thread::sleep_for(kPause);
    tell();
  }
  are_all_failing_ = false;
}

void FailedOperations::tell() {
  for (std::vector<Failed> failed = take(); !failed.empty(); failed = take()) {
    for (const Failed& each : failed) {
      const std::runtime_error error(each.text);  // the type that MXNet copies
      each.done.callback(each.done.engine, each.done.operation, &error);
    }
  }
}

std::vector<FailedOperations::Failed> FailedOperations::take() {
  const std::lock_guard guard(lock_);
  if (waiting_.empty()) is_pushed_ = false;
  return std::exchange(waiting_, {});
}

}  // namespace ciranda::mxnet
