#include "engine/engine.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "agree/auto_names.hpp"
#include "base/block_signals.hpp"
#include "call/callback_threads.hpp"
#include "call/callbacks.hpp"
#include "engine/preparation.hpp"
#include "engine/progress_loop.hpp"
#include "engine/shared_memory.hpp"
#include "execute/staged.hpp"
#include "observe/timeline.hpp"
#include "progress/back_off.hpp"
#include "progress/oversubscription.hpp"
#include "progress/progress_lock.hpp"
#include "progress/submission_coalescing.hpp"
#include "progress/time_left.hpp"
#include "progress/waits.hpp"

namespace ciranda {
namespace {

using Clock = std::chrono::steady_clock;

// Turns that a submitting thread gives the engine in passing; more is left to whoever waits, or to the background.
constexpr int kIterationsInPassing = 4;
constexpr int kIterationsWhileArming = 4;
// At a direct round, before all else that is done for a waiting thread: about as long as that takes.
constexpr int kLooksAtOnce = 50;
constexpr auto kGoodbyeTimeout = std::chrono::seconds(2);
constexpr auto kSignalTimeout = std::chrono::seconds(1);

}  // namespace

// The progress lock is `lock_`. A thread that holds it has disarmed the mesh's doorbell; whoever gives it back arms
// the doorbell and looks once more, so that the background thread, asleep in Mesh::sleep, is woken by whatever comes.
class Engine::Impl {
 public:
  Impl(std::unique_ptr<Mesh> mesh, const Config& config, std::span<const BackendRow> backends)
      : mesh_(std::move(mesh)),
        sets_(mesh_->size()),
        preparation_(mesh_->rank(), sets_),
        wake_(std::make_shared<Wake>(*mesh_)),
        staging_(backends, sets_, mesh_->rank(), wake_),
        loop_(*mesh_, config, submissions_, {ops_, auto_names_}, sets_, *recorder_, backends),
        spin_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double, std::micro>(config.spin_microseconds))),
        is_oversubscribed_(is_oversubscribed(*mesh_)),
        sharing_(mesh_->rank()),
        logger_(mesh_->rank(), log_level_from(config.log_level)) {
    const BlockSignals blocked;  // inherited by the thread
    mesh_->arm();
    background_ = std::thread([this] { run_background(); });
  }

  ~Impl() {
    leave();  // also if another thread has begun to
    wake_->end();
  }

  Mesh& mesh() { return *mesh_; }
  ProcessSets& sets() { return sets_; }
  // What `ask` finds, which needs the progress lock.
  template <typename Ask>
  auto held(Ask ask) {
    std::invoke_result_t<Ask, const ProgressLoop&> found;
    {
      lock_.take();
      const Holder holder(*this);
      found = ask(loop_);
    }
    see_what_came_late();
    return found;
  }
  std::uint64_t n_met() const { return loop_.n_met(); }
  bool has_failed() const { return loop_.has_failed(); }

  OperationPtr submit(Request&& request, Operation::Callback callback) {
    const std::uint64_t submitted = recorder_->now();
    const Flush flush(callback_threads_);
    auto operation = std::make_shared<Operation>();
    if (callback) {
      operation->when_done(request.calls_back_directly ? std::move(callback) : on_own_thread(std::move(callback)));
    }
    if (Status status = preparation_.prepare(request); !status.ok()) {
      operation->refuse(std::move(status));
      return operation;
    }
    Result<std::unique_ptr<Staged>> staged = staging_.stage(request);
    if (!staged.ok()) {
      operation->refuse(staged.status());
      return operation;
    }
    PersistentOp* const op =
        is_numbered(request) ? nullptr : ops_.take(lane_id(request.process_set, request.lane), request.name);
    const bool is_duplicate = op == nullptr && !is_numbered(request);
    if (is_duplicate && request.signature.collective == Collective::kJoin) {
      operation->refuse(Status::invalid_argument("join() is pending already on rank " + std::to_string(mesh_->rank()) +
                                                 "; join once and wait for it."));
      return operation;
    }
    if (is_duplicate) {
      // This call fails at once; the others hear of it through the log, by an operation that nobody sees.
      operation->refuse(Status::invalid_argument(
          "Duplicate name '" + request.name + "' on rank " + std::to_string(mesh_->rank()) +
          ": its first use is still pending. Wait for the first one, or give each its own name."));
      request.memory.clear();
      if (request.process_set == kWorldSet) loop_.note_failure();  // now: what this rank does next is after it
    }
    const bool is_awaited = request.is_awaited;
    const bool waits_now = is_awaited && !request.is_early;
    const std::size_t n_bytes = request.signature.n_bytes();
    Submission submission{std::move(request), is_duplicate ? std::make_shared<Operation>() : operation, op,
                          is_duplicate ? 0 : submitted, std::move(staged).value()};
    const Taken taken = is_awaited ? take_in(submission) : Taken::kNot;
    if (taken == Taken::kAtRound || (taken == Taken::kInFlight && waits_now)) return operation;
    if (taken == Taken::kNot) submissions_.push(std::move(submission));
    if (is_shut_down_.load()) {
      fail_late_submissions();
    } else if (!waits_now) {
      progress_or_leave_it(n_bytes);
    }
    return operation;
  }

  // The mesh stays armed, as in take_in().
  std::optional<OperationPtr> repeat(const Call& call) {
    Stages stages;
    const bool is_recorded = recorder_->is_on();
    if (is_recorded) stages.note(Stage::kSubmitted);
    if (!lock_.try_take()) return std::nullopt;
    std::optional<OperationPtr> repeated;
    {
      const Holder holder(*this);
      const bool is_free = !is_shut_down_.load() && submissions_.is_empty();
      if (is_free) repeated = loop_.repeat(call, is_recorded ? &stages : nullptr, n_looks_at_once());
    }
    see_what_came_late();
    return repeated;
  }

  Status wait(const OperationPtr& operation, const Interrupted& interrupted, const Deadline& deadline) {
    if (Status status = may("wait"); !status.ok()) return status;
    if (operation->is_done()) return operation->status();
    Waiting waiting(waits_);
    // Asked before each sleep: a signal that comes while this thread runs the progress loop cuts no system call short.
    // One that comes just before the system call is noticed when that ends.
    bool is_late = false;
    while (!drive_until_done(*operation, deadline, waiting)) {
      is_late = deadline && Clock::now() >= *deadline;
      if (is_late || (interrupted && interrupted())) break;
      if (operation->sleep_until_done(interrupted ? at_most(kSignalTimeout, deadline) : time_to(deadline))) break;
    }
    if (operation->is_done()) return operation->status();
    return is_late ? Status::timeout("the operation was not done in time")
                   : Status::aborted("the wait was interrupted");
  }

  void when_done(const OperationPtr& operation, Operation::Callback callback) {
    operation->when_done(
        [waiting = std::make_shared<Waiting>(waits_), callback = std::move(callback)](const Operation& done) {
          waiting->end();
          callback(done);
        });
    if (!operation->is_done()) progress_in_passing(true);
  }

  void call_back(const OperationPtr& operation, Operation::Callback callback) {
    const Flush flush(callback_threads_);  // of one that is done already
    operation->when_done(on_own_thread(std::move(callback)));
    if (!operation->is_done()) progress_in_passing(false);  // one that is awaited is told to other ranks now
  }

  bool poll(const OperationPtr& operation) {
    if (!operation->is_done()) progress_in_passing(true);
    return operation->is_done();
  }

  std::unique_ptr<Recording> record() const { return std::make_unique<Recording>(recorder_); }

  Status start_timeline(const std::string& path, bool marks_cycles) {
    if (mesh_->rank() != 0) return Status::ok_status();
    const std::lock_guard lock(timeline_mutex_);
    if (timeline_) {
      return Status::invalid_argument("a timeline is being recorded already; call stop_timeline() first");
    }
    const BlockSignals blocked;  // inherited by its thread
    auto timeline = Timeline::create({path, marks_cycles, mesh_->rank()}, recorder_, logger_);
    if (timeline.ok()) timeline_ = std::move(timeline).value();
    return timeline.status();
  }

  void stop_timeline() {
    const std::lock_guard lock(timeline_mutex_);
    timeline_.reset();
  }

  void shutdown() {
    if (may("shut down").ok()) leave();
  }

 private:
  // At the end of a scope, whatever was completed in it.
  class Flush {
   public:
    explicit Flush(CallbackThreads& threads) : threads_(threads) {}
    ~Flush() { threads_.flush(); }
    Flush(const Flush&) = delete;
    Flush& operator=(const Flush&) = delete;

   private:
    CallbackThreads& threads_;
  };

  // Gives the lock back, then wakes a thread for the callbacks of what this thread has completed.
  struct Holder {
    explicit Holder(Impl& engine) : flush(engine.callback_threads_), lock(engine.lock_) {}
    Flush flush;
    ProgressLockHolder lock;
  };

  // What does so.
  Operation::Callback on_own_thread(Operation::Callback callback) {
    return [this, callback = std::move(callback)](const Operation& done) {
      callback_threads_.post([callback, operation = done.shared_from_this()] { callback(*operation); });
    };
  }

  // One iteration, and one wake for all callbacks of what was done in it. REQUIRES: the lock.
  bool progress() {
    const bool moved = loop_.run();
    callback_threads_.flush();
    return moved;
  }

  void leave() {
    if (!is_shut_down_.exchange(true)) end_world();
    callback_threads_.finish();
  }

  void end_world() {
    mesh_->kick();
    background_.join();
    {
      lock_.take();
      const Holder holder(*this);
      mesh_->disarm();
      loop_.say_bye();
      say_goodbye_until_known();
    }
    fail_late_submissions();
    stop_timeline();
  }

  enum class Taken : std::uint8_t { kNot, kInFlight, kAtRound };

  // A call whose thread will wait() for it is taken in at once, if nothing stands before it: it may be one for which
  // the other ranks are there already, and is then done before anything more is made of it. The mesh stays armed:
  // nothing is received, and whatever comes meanwhile wakes the background thread; so does who closes a round to which
  // this call has come.
  Taken take_in(Submission& submission) {
    if (!lock_.try_take()) return Taken::kNot;
    Taken taken = Taken::kNot;
    {
      const Holder holder(*this);
      if (!is_shut_down_.load() && submissions_.is_empty()) {
        const int n_looks = submission.request.is_early ? 0 : n_looks_at_once();
        taken = loop_.submit(std::move(submission), n_looks) ? Taken::kAtRound : Taken::kInFlight;
      }
    }
    see_what_came_late();
    return taken;
  }

  int n_looks_at_once() const { return is_oversubscribed_ ? 1 : kLooksAtOnce; }

  // Takes the lock if it is free, runs the loop as `drive` does, and gives the lock back. Returns whether it had the
  // lock. `in_burst`: the mesh is left disarmed if a burst is watched: the watcher looks before long. It may have ended
  // before this thread had the lock, but cannot be over with before the lock is given back.
  template <typename Drive>
  bool with_lock(Drive drive, bool in_burst = false) {
    if (!lock_.try_take()) return false;
    const Holder holder(*this);
    if (is_shut_down_.load()) return true;
    mesh_->disarm();
    drive();
    if (in_burst && coalescing_.is_watched()) return true;
    if (!arm_when_nothing_moves() || is_due_before_background_wakes()) mesh_->kick();
    return true;
  }

  // What came between the last look and arming rings no bell, so there is another look. Often it is the next call of a
  // rank that was first: cheaper to take in at once than to wake the background thread for. REQUIRES: the lock.
  bool arm_when_nothing_moves() {
    for (int i = 0; i < kIterationsWhileArming; ++i) {
      arm();
      if (!progress()) return true;
    }
    return false;
  }

  // REQUIRES: the lock.
  void arm() {
    waits_.heed();
    const bool is_any_waiting = waits_.are_any();  // those that sleep, or did not get the lock
    if (is_any_waiting) loop_.expect_no_more();
    loop_.leave_rounds();  // also those to which what was just taken in has come
    if (is_any_waiting) loop_.insist();
    const bool awaits = is_any_waiting || loop_.awaits_lazy_news();
    const Sleeper without = loop_.has_work() ? Sleeper::kIdle : Sleeper::kResting;
    mesh_->arm(awaits ? Sleeper::kAwaits : without);
  }

  // REQUIRES: the lock.
  bool is_due_before_background_wakes() const {
    const auto deadline = loop_.next_deadline();
    return deadline && (!deadline_ || *deadline < *deadline_);
  }

  // A submission pushed, or a wait begun, while the lock was held may have been seen by nobody: that thread could not
  // take the lock and the holder had looked already. So whoever gives it back looks again.
  bool is_something_unseen() const { return !submissions_.is_empty() || !waits_.are_heeded(); }
  void see_what_came_late() {
    while (is_something_unseen() && !is_shut_down_.load()) {
      if (!with_lock([this] { progress(); })) return;
    }
  }

  void progress_or_leave_it(std::size_t n_bytes) {
    const SubmissionCoalescing::Choice choice = coalescing_.choose(n_bytes, Clock::now());
    if (choice == SubmissionCoalescing::Choice::kLeaveAndWake) mesh_->kick();
    if (choice != SubmissionCoalescing::Choice::kProgress) return;
    progress_in_passing(false, !waits_.are_any());
    coalescing_.progressed(Clock::now());
  }

  void progress_in_passing(bool is_waited_for, bool in_burst = false) {
    const auto drive = [&] {
      if (is_waited_for) loop_.expect_no_more();
      for (int i = 0; i < kIterationsInPassing && progress(); ++i) {
      }
    };
    const bool had_lock = with_lock(drive, in_burst);
    if (had_lock) see_what_came_late();
  }

  // Returns whether the operation is done. Gives up at the deadline, and when nothing has moved for the spin time: then
  // the background thread, woken by whatever comes next, goes on.
  bool drive_until_done(const Operation& operation, const Deadline& deadline, Waiting& waiting) {
    BackOff back_off(spin_, is_oversubscribed_, sharing_);
    const auto goes_on_after = [&back_off, &deadline](bool moved) {
      if (deadline && Clock::now() >= *deadline) return false;
      if (!moved) return back_off.look_again();
      back_off.renew();
      return true;
    };
    n_drivers_.fetch_add(1);
    bool goes_on = true;
    while (goes_on && !operation.is_done()) {
      const bool had_lock = with_lock([&] {
        n_waiters_driving_.fetch_add(1);
        loop_.expect_no_more();
        while (goes_on && !operation.is_done() && !is_shut_down_.load()) goes_on = goes_on_after(progress());
        if (operation.is_done()) waiting.end();
        n_waiters_driving_.fetch_sub(1);  // before it arms: whoever sees one that drives knows that it still will
      });
      if (!had_lock) goes_on = goes_on_after(false);
      if (is_shut_down_.load()) break;
    }
    n_drivers_.fetch_sub(1);
    see_what_came_late();
    return operation.is_done();
  }

  void run_background() {
    prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds, not 50 microseconds
    std::optional<TimePoint> deadline;
    while (!is_shut_down_.load()) {
      if (!is_something_unseen() && !coalescing_.is_watched()) mesh_->sleep(time_to(deadline));
      if (coalescing_.is_watched()) {
        watch_burst();
        // One that sees what was left, and what rang while the burst was watched, and has yet to arm. Not any that has
        // armed before: a bell that has rung since, which nobody heeds now, has disarmed the mesh.
        if (n_waiters_driving_.load() > 0) continue;
      }
      if (is_shut_down_.load()) return;
      lock_.take();
      const Holder holder(*this);
      mesh_->disarm();
      drive_in_background();
      if (!arm_when_nothing_moves()) mesh_->kick();
      deadline_ = deadline = loop_.next_deadline();
    }
  }

  // Takes in what a burst leaves, until it ends. A thread that runs the progress loop does so anyway.
  void watch_burst() {
    const auto take_in = [this] {
      while (progress()) {
      }
    };
    while (coalescing_.is_watched() && !is_shut_down_.load()) {
      coalescing_.begin_look();
      with_lock(take_in, true);
      if (coalescing_.ends()) return;
      mesh_->sleep(coalescing_.until_next_look(Clock::now()));
    }
  }

  // REQUIRES: the lock. A thread that waits gets it as soon as nothing moves.
  void drive_in_background() {
    BackOff back_off(spin_, is_oversubscribed_, sharing_);
    while (!is_shut_down_.load()) {
      if (progress()) {
        back_off.renew();
      } else if (n_drivers_.load() > 0 || !loop_.has_work() || is_oversubscribed_ || !back_off.look_again()) {
        return;
      }
    }
  }

  // REQUIRES: the lock, and no background thread.
  void say_goodbye_until_known() {
    const auto give_up = Clock::now() + kGoodbyeTimeout;
    while (!loop_.is_bye_known() && Clock::now() < give_up) {
      if (progress()) continue;
      mesh_->arm();
      if (!progress()) mesh_->sleep(give_up - Clock::now());
      mesh_->disarm();
    }
  }

  void fail_late_submissions() {
    const Flush flush(callback_threads_);
    std::vector<Submission> all;
    submissions_.take(all);
    for (Submission& late : all) {
      late.operation->complete(
          Status::aborted("rank " + std::to_string(mesh_->rank()) + " has shut down; call init() again."));
    }
  }

  std::unique_ptr<Mesh> mesh_;
  CallbackThreads callback_threads_;  // which may use all below, up to the end of leave()
  const std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  SubmissionQueue submissions_;
  PersistentOps ops_;
  AutoNames auto_names_;
  ProcessSets sets_;
  Preparation preparation_;
  const std::shared_ptr<Wake> wake_;
  Staging staging_;
  ProgressLoop loop_;
  Clock::duration spin_;
  bool is_oversubscribed_;
  CoreSharing sharing_;
  Logger logger_;
  ProgressLock lock_;
  SubmissionCoalescing coalescing_;
  std::atomic<int> n_drivers_{0};          // threads that run the progress loop, or try to
  std::atomic<int> n_waiters_driving_{0};  // of those, who wait, have the lock, and have yet to arm the mesh
  Waits waits_;
  std::atomic<bool> is_shut_down_{false};
  std::optional<TimePoint> deadline_;  // when the background thread wakes by itself; under the lock
  std::mutex timeline_mutex_;
  std::unique_ptr<Timeline> timeline_;
  std::thread background_;
};

std::unique_ptr<Engine> Engine::create(std::unique_ptr<Mesh> mesh, const Config& config,
                                       std::span<const BackendRow> backends) {
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(mesh), config, backends)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

int Engine::rank() const { return impl_->mesh().rank(); }
int Engine::size() const { return impl_->mesh().size(); }
const PeerInfo& Engine::peer(int rank) const { return impl_->mesh().peer(rank); }
bool Engine::shares_memory_with_all() const { return impl_->mesh().arena() != nullptr || size() == 1; }

Engine::OperationPtr Engine::submit(Request request, Operation::Callback callback) {
  return impl_->submit(std::move(request), std::move(callback));
}

std::optional<Engine::OperationPtr> Engine::repeat(const Call& call) { return impl_->repeat(call); }
Status Engine::wait(const OperationPtr& operation, const Interrupted& interrupted, Deadline deadline) {
  return impl_->wait(operation, interrupted, deadline);
}
void Engine::when_done(const OperationPtr& operation, Operation::Callback callback) {
  impl_->when_done(operation, std::move(callback));
}
void Engine::call_back(const OperationPtr& operation, Operation::Callback callback) {
  impl_->call_back(operation, std::move(callback));
}
bool Engine::poll(const OperationPtr& operation) { return impl_->poll(operation); }
std::vector<int> Engine::ranks_of(std::uint32_t process_set) const {
  const Ranks ranks = impl_->sets().ranks(process_set);
  return ranks ? *ranks : std::vector<int>{};
}
Result<std::uint32_t> Engine::form_set(std::vector<int> ranks, std::uint32_t nth) {
  return impl_->sets().form(rank(), std::move(ranks), nth);
}
std::uint32_t Engine::pair_with(int peer) const {
  const bool is_other = peer >= 0 && peer < size() && peer != rank() && size() <= kMaxPairRank;
  return is_other ? pair_of(rank(), peer) : 0;
}
Result<SharedAllocation> Engine::allocate_shared(std::size_t n_bytes, const Interrupted& interrupted) {
  SharedArena* arena = impl_->mesh().arena();
  return ciranda::allocate_shared(*this, arena != nullptr ? arena->shared_regions() : nullptr, n_bytes, interrupted);
}
std::vector<Candidate> Engine::candidates(Collective collective, std::size_t n_bytes) const {
  return impl_->held(
      [&](const ProgressLoop& loop) { return loop.first_lane().data().candidates(collective, n_bytes); });
}
std::string_view Engine::agreement(Collective collective, std::size_t n_bytes) const {
  return impl_->held([&](const ProgressLoop& loop) { return loop.first_lane().agreement(collective, n_bytes); });
}
std::uint64_t Engine::n_bytes_in_place() const {
  const SharedArena* arena = impl_->mesh().arena();
  return arena != nullptr ? arena->regions().n_bytes_in_place() : 0;
}
std::uint64_t Engine::n_met() const { return impl_->n_met(); }
bool Engine::has_failed() const { return impl_->has_failed(); }
std::unique_ptr<Recording> Engine::record() const { return impl_->record(); }
Status Engine::start_timeline(const std::string& path, bool marks_cycles) {
  return impl_->start_timeline(path, marks_cycles);
}
void Engine::stop_timeline() { impl_->stop_timeline(); }
void Engine::shutdown() { impl_->shutdown(); }

}  // namespace ciranda
