#include "bindings/mxnet/push.hpp"

#include <atomic>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

namespace ciranda::mxnet {

namespace {

// The operation of MXNet's engine. It is deleted once the push has returned and MXNet has called discard().
class Operation {
 public:
  explicit Operation(std::unique_ptr<Running> running) : running_(std::move(running)) {}

  // MXNet calls this at most once; never if a needed array has failed, or after its engine has shut down.
  static void run(void* /*run_context*/, void* done, void* operation) {
    Running::submit(std::move(static_cast<Operation*>(operation)->running_), *static_cast<const OnComplete*>(done));
  }

  static void discard(void* operation) { static_cast<Operation*>(operation)->note(kDiscarded); }

  void pushed() { note(kPushed); }

 private:
  enum Event { kPushed = 1, kDiscarded = 2 };

  // Called on MXNet's threads, which must not get exceptions.
  void note(Event event) noexcept {
    if ((events_.fetch_or(event) | event) != (kPushed | kDiscarded)) return;
    try {
      if (running_) Running::submit_nothing(std::move(running_));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ciranda.mxnet: could not inform the other ranks that an array has failed: %s\n",
                   error.what());
    }
    delete this;
  }

  std::unique_ptr<Running> running_;
  std::atomic<int> events_{0};
};

}  // namespace

std::string push(std::unique_ptr<Running> running, std::string* report) {
  const std::shared_ptr<std::string> told = is_naive() ? std::make_shared<std::string>() : nullptr;
  running->report_to(told);
  std::vector<ArrayHandle> read = running->read();
  std::vector<ArrayHandle> written = running->written();
  const int priority = running->priority();
  auto operation = std::make_unique<Operation>(std::move(running));
  const int failed = mx().EnginePushAsyncND(&Operation::run, operation.get(), &Operation::discard, &kCpu, read.data(),
                                            static_cast<int>(read.size()), written.data(),
                                            static_cast<int>(written.size()), &kAsync, priority, "Ciranda", false);
  if (failed != 0) return mx().GetLastError();
  operation.release()->pushed();
  if (told) *report = *told;
  return "";
}

}  // namespace ciranda::mxnet
