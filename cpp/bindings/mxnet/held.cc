#include "bindings/mxnet/held.hpp"

#include <exception>
#include <utility>

namespace ciranda::mxnet {

// The operation of MXNet's engine. MXNet deletes it by calling discard().
class Held::Operation {
 public:
  explicit Operation(Held& held) : held_(&held) {}

  static void run(void* /*run_context*/, void* done, void* operation) {
    std::exchange(static_cast<Operation*>(operation)->held_, nullptr)->begin(*static_cast<const OnComplete*>(done));
  }

  // Called without run() if an array has failed.
  static void discard(void* operation) {
    const std::unique_ptr<Operation> it(static_cast<Operation*>(operation));
    if (it->held_ != nullptr) it->held_->note(State::kFailed);
  }

 private:
  Held* held_;
};

std::unique_ptr<Held> Held::take(std::span<const ArrayHandle> arrays, std::string& problem) {
  auto held = std::make_unique<Held>();
  for (const ArrayHandle array : arrays) {
    held->arrays_.push_back(share(array));
    if (!held->arrays_.back()) {
      problem = mx().GetLastError();
      return nullptr;
    }
  }
  std::vector<ArrayHandle> read = one_each(held->arrays_);
  auto operation = std::make_unique<Operation>(*held);
  if (mx().EnginePushAsyncND(&Operation::run, operation.get(), &Operation::discard, &kCpu, read.data(),
                             static_cast<int>(read.size()), nullptr, 0, &kAsync, 0, "Ciranda", false) != 0) {
    problem = mx().GetLastError();
    return nullptr;
  }
  (void)operation.release();  // discard() deletes it
  std::unique_lock guard(held->lock_);
  held->changed_.wait(guard, [&] { return held->state_ != State::kWaiting; });
  const bool has_failed = held->state_ == State::kFailed;
  guard.unlock();
  problem = held->problem_;
  if (has_failed || !problem.empty()) return nullptr;
  return held;
}

Held::~Held() {
  if (done_.callback != nullptr) done_.callback(done_.engine, done_.operation, nullptr);
}

void Held::begin(const OnComplete& done) {
  try {
    for (const Array& array : arrays_) {
      data_.push_back(nullptr);
      if (problem_.empty()) problem_ = data_to_read(array.get(), copies_, &data_.back());
    }
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
  if (is_naive()) {
    done.callback(done.engine, done.operation, nullptr);  // the push waits for this
  } else {
    done_ = done;
  }
  note(State::kHolds);
}

void Held::note(State state) {
  const std::lock_guard guard(lock_);
  state_ = state;
  changed_.notify_all();
}

}  // namespace ciranda::mxnet
