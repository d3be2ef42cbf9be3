#include "backend/cuda/nccl_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/block_signals.hpp"

namespace ciranda::cuda {
namespace {

// Between two looks at what NCCL does by itself.
constexpr std::chrono::microseconds kPoll{50};
constexpr std::chrono::milliseconds kLookEvery{20};
// How long an abort waits for a call of NCCL that is under way, for NCCL itself, and how long the end of a communicator
// waits for the other ranks.
constexpr std::chrono::seconds kLongestCall{1};
constexpr std::chrono::seconds kLongestAbort{5};
constexpr std::chrono::seconds kLongestEnd{5};

Status aborted() { return Status::aborted("its communicator of NCCL was aborted, as another call on its GPU failed"); }

using Communicators = std::vector<std::shared_ptr<NcclCommunicator>>;

// Those of the process that NCCL has.
struct Live {
  std::mutex mutex;
  std::condition_variable added;
  Communicators all;
};

Live& live() {
  static Live& live = *new Live;  // as long as the threads
  return live;
}

void start_thread(auto work) {
  const BlockSignals blocked;  // the thread inherits the mask
  std::thread(std::move(work)).detach();
}

// Without the lock, if that is not to be had for so long.
std::unique_lock<std::mutex> lock_soon(std::mutex& mutex) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestCall;
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock.owns_lock() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

// Ends the process unless it is told within the time that NCCL has come back. NCCL waits for graphs with work of its
// communicators to be destroyed, which may never be; that time does not count.
class Deadline {
 public:
  Deadline(std::string gpu, std::function<bool()> must_wait) {
    start_thread([state = state_, gpu = std::move(gpu), must_wait = std::move(must_wait)] {
      std::unique_lock lock(state->mutex);
      bool may_be_late = true;
      while (may_be_late) {
        may_be_late = must_wait();
        if (state->changed.wait_for(lock, kLongestAbort, [&] { return state->is_met; })) return;
      }
      std::fprintf(
          stderr,
          "ciranda: NCCL does not end its work on %s, which it would keep for ever: this process ends. See the "
          "kernel's log (dmesg) for Xid errors, and NCCL_DEBUG=INFO.\n",
          gpu.c_str());
      std::_Exit(EXIT_FAILURE);
    });
  }
  void met() {
    const std::lock_guard lock(state_->mutex);
    state_->is_met = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_met = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

// A thread that asks the communicators, while there are some, whether something has gone wrong. The rank that waits for
// one sleeps.
struct NcclWatch {
  static void add(const std::shared_ptr<NcclCommunicator>& made) {
    const std::lock_guard lock(live().mutex);
    live().all.push_back(made);
    live().added.notify_one();
    static const bool is_started = (start_thread(run), true);
    static_cast<void>(is_started);
  }

 private:
  static void run() {
    while (true) {
      for (const auto& each : all()) each->watch();
      std::this_thread::sleep_for(kLookEvery);
    }
  }

  // Once there is one.
  static Communicators all() {
    std::unique_lock lock(live().mutex);
    live().added.wait(lock, [] { return !live().all.empty(); });
    return live().all;
  }
};

// Takes those of a GPU, or one of them, out of the process's, and aborts them together.
struct NcclAbort {
  static Communicators take(const auto& is_wanted) {
    const std::lock_guard lock(live().mutex);
    Communicators taken;
    for (const auto& each : live().all) {
      if (is_wanted(*each)) taken.push_back(each);
    }
    std::erase_if(live().all, [&](const auto& each) { return is_wanted(*each); });
    for (const auto& each : taken) each->is_over_.store(true);
    return taken;
  }

  static void run(const Communicators& taken) {
    Deadline deadline(taken.front()->gpu_.name(), [taken] {
      return std::ranges::any_of(taken, [](const auto& each) { return each->is_in_graph(); });
    });
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& each : taken) locks.push_back(lock_soon(each->mutex_));
    const Nccl& nccl = taken.front()->nccl_;
    nccl.ncclGroupStart();
    for (const auto& each : taken) nccl.ncclCommAbort(each->handle_);
    nccl.ncclGroupEnd();
    deadline.met();
  }

  static void all_of(const Gpu& gpu) {
    Communicators taken = take([&](const NcclCommunicator& each) { return &each.gpu_ == &gpu; });
    if (!taken.empty()) start_thread([taken = std::move(taken)] { run(taken); });
  }

  static void one(const NcclCommunicator& communicator) {
    const Communicators taken = take([&](const NcclCommunicator& each) { return &each == &communicator; });
    if (!taken.empty()) run(taken);
  }

  // Whether it was there.
  static bool forget(const NcclCommunicator& communicator) {
    const std::lock_guard lock(live().mutex);
    return std::erase_if(live().all, [&](const auto& each) { return each.get() == &communicator; }) > 0;
  }
};

Result<std::shared_ptr<NcclCommunicator>> NcclCommunicator::begin(const Nccl& nccl, const Gpu& gpu,
                                                                  const ncclUniqueId& id, int n_ranks, int rank,
                                                                  std::function<void()> wake) {
  ncclConfig_t config;
  config.blocking = 0;
  ncclComm_t handle = nullptr;
  const ncclResult_t begun = nccl.ncclCommInitRankConfig(&handle, n_ranks, id, rank, &config);
  if (Status status = nccl.check(begun, "ncclCommInitRankConfig"); !status.ok()) return status;
  std::shared_ptr<NcclCommunicator> made(new NcclCommunicator(nccl, gpu, handle, std::move(wake)));
  NcclWatch::add(made);
  return made;
}

std::unique_lock<std::mutex> NcclCommunicator::lock_of_calls() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock() && !is_over_.load()) {
    std::this_thread::sleep_for(kPoll);
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

std::shared_ptr<void> NcclCommunicator::in_graph() {
  n_in_graphs_.fetch_add(1);
  return {this, [self = shared_from_this()](void*) { self->n_in_graphs_.fetch_sub(1); }};
}

Status NcclCommunicator::call(const char* name, const auto& function) {
  const std::unique_lock lock = lock_of_calls();
  if (is_over_.load()) return aborted();
  return nccl_.check(function(), name);
}

Status NcclCommunicator::await_made(std::chrono::duration<double> most) {
  using Clock = std::chrono::steady_clock;
  return await("ncclCommInitRankConfig", Clock::now() + std::chrono::duration_cast<Clock::duration>(most));
}

Status NcclCommunicator::await(const char* name, std::chrono::steady_clock::time_point deadline) {
  auto state = ncclResult_t::kInProgress;
  Status asked;
  while (true) {
    asked = call("ncclCommGetAsyncError", [&] { return nccl_.ncclCommGetAsyncError(handle_, &state); });
    if (!asked.ok() || state != ncclResult_t::kInProgress) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      asked = Status::internal(std::string(name) + " of " + nccl_.text() + " does not end: see NCCL_DEBUG=INFO");
      break;
    }
    std::this_thread::sleep_for(kPoll);
  }
  is_under_way_.store(false);
  return asked.ok() ? nccl_.check(state, name) : asked;
}

ncclResult_t NcclCommunicator::launch(const NcclOperation& o, CUstream stream) const {
  using Does = NcclOperation::Does;
  switch (o.does) {
    case Does::kAllreduce: return nccl_.ncclAllReduce(o.from, o.to, o.count, o.type, o.op, handle_, stream);
    case Does::kReduce: return nccl_.ncclReduce(o.from, o.to, o.count, o.type, o.op, o.peer, handle_, stream);
    case Does::kReducescatter: return nccl_.ncclReduceScatter(o.from, o.to, o.count, o.type, o.op, handle_, stream);
    case Does::kAllgather: return nccl_.ncclAllGather(o.from, o.to, o.count, o.type, handle_, stream);
    case Does::kBroadcast: return nccl_.ncclBroadcast(o.from, o.to, o.count, o.type, o.peer, handle_, stream);
    case Does::kSend: return nccl_.ncclSend(o.from, o.count, o.type, o.peer, handle_, stream);
    case Does::kReceive: break;
  }
  return nccl_.ncclRecv(o.to, o.count, o.type, o.peer, handle_, stream);
}

// What is begun is ended, whatever happens: the thread must be in no group afterwards.
ncclResult_t NcclCommunicator::launch_all(const std::vector<NcclOperation>& operations, CUstream stream) const {
  if (operations.size() == 1) return launch(operations.front(), stream);
  ncclResult_t outcome = nccl_.ncclGroupStart();
  if (outcome != ncclResult_t::kSuccess) return outcome;
  for (const NcclOperation& operation : operations) {
    outcome = launch(operation, stream);
    if (outcome != ncclResult_t::kSuccess && outcome != ncclResult_t::kInProgress) break;
  }
  const ncclResult_t ended = nccl_.ncclGroupEnd();
  return outcome == ncclResult_t::kSuccess || outcome == ncclResult_t::kInProgress ? ended : outcome;
}

// NCCL may have queued nothing when the calls return; what is queued behind them must come later.
Status NcclCommunicator::run(const std::vector<NcclOperation>& operations, CUstream stream) {
  is_under_way_.store(true);
  const Status status = call("a collective", [&] { return launch_all(operations, stream); });
  return status.ok() ? await("a collective", std::chrono::steady_clock::time_point::max()) : status;
}

Status NcclCommunicator::status() const {
  if (has_failed_.load(std::memory_order_acquire)) return failed_;
  return is_over_.load() ? aborted() : Status::ok_status();
}

// While a call is waited for, who waits learns of errors.
Status NcclCommunicator::look() {
  const std::unique_lock lock = lock_of_calls();
  if (is_over_.load()) return aborted();
  if (is_under_way_.load()) return Status::ok_status();
  auto state = ncclResult_t::kSuccess;
  const ncclResult_t asked = nccl_.ncclCommGetAsyncError(handle_, &state);
  return nccl_.check(asked == ncclResult_t::kSuccess ? state : asked, "a collective");
}

void NcclCommunicator::watch() {
  Status found = look();
  if (found.ok() || is_over_.load() || has_failed_.load()) return;
  failed_ = std::move(found);
  has_failed_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_of_wakes_);
  for (const auto& wake : wakes_) wake();
}

void NcclCommunicator::also_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_of_wakes_);
  wakes_.push_back(std::move(wake));
}

void NcclCommunicator::abort_all(const Gpu& gpu) { NcclAbort::all_of(gpu); }

void NcclCommunicator::end() {
  start_thread([self = shared_from_this()] { self->finalize(); });
}

void NcclCommunicator::finalize() {
  const auto deadline = std::chrono::steady_clock::now() + kLongestEnd;
  Status status = call("ncclCommFinalize", [this] { return nccl_.ncclCommFinalize(handle_); });
  auto state = ncclResult_t::kInProgress;
  while (status.ok() && state == ncclResult_t::kInProgress && std::chrono::steady_clock::now() < deadline) {
    status = call("ncclCommGetAsyncError", [&] { return nccl_.ncclCommGetAsyncError(handle_, &state); });
    if (state == ncclResult_t::kInProgress) std::this_thread::sleep_for(kPoll);
  }
  if (!status.ok() || state != ncclResult_t::kSuccess) return NcclAbort::one(*this);
  if (NcclAbort::forget(*this)) {
    static_cast<void>(call("ncclCommDestroy", [this] {
      is_over_.store(true);
      return nccl_.ncclCommDestroy(handle_);
    }));
  }
}

}  // namespace ciranda::cuda
