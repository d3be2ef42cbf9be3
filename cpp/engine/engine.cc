#include "engine/engine.hpp"

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/block_signals.hpp"
#include "base/earliest.hpp"
#include "engine/device_advice.hpp"
#include "engine/preparation.hpp"
#include "engine/progress_threads.hpp"
#include "engine/world_parts.hpp"
#include "engine/world_text.hpp"
#include "execute/staged.hpp"
#include "observe/call_log.hpp"
#include "observe/recorded_steps.hpp"
#include "observe/timeline.hpp"
#include "observe/trace_format.hpp"

namespace ciranda {
namespace {

// How often a waiting thread checks for signals, and whether all other threads wait as well.
constexpr std::chrono::nanoseconds kLookInterval = ProgressThreads::kLookInterval;
// The time until the first check in a wait for a rare call, for which more checks cost nothing. A thread that was given
// work when the wait began is awake by then.
constexpr std::chrono::nanoseconds kFirstLookAtRare = std::chrono::milliseconds(20);

// Makes the callback run on a thread for callbacks, which the next flush() wakes.
Operation::Callback on_own_thread(CallbackThreads& threads, Operation::Callback callback) {
  return [&threads, callback = std::move(callback)](const Operation& done) {
    threads.post([callback, operation = done.shared_from_this()] { callback(*operation); });
  };
}

Status duplicate(const Request& request, int rank) {
  const std::string on_rank = " on rank " + std::to_string(rank);
  if (request.signature.collective == Collective::kJoin) {
    return Status::invalid_argument("join() is pending already" + on_rank + "; join once and wait for it.");
  }
  return Status::invalid_argument(
      "Duplicate name '" + request.name + "'" + on_rank +
      ": its first use is still pending. Wait for the first one, or give each its own name.");
}

// The absolute path of a file: the same for all relative paths to it.
std::string whole_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

// How long a rank that leaves waits for results on its devices, and how often who waits for them looks around.
constexpr std::chrono::seconds kLongestResults{30};
constexpr std::chrono::milliseconds kResultsInterval{50};

RecordedSteps::Options steps_of(const Config& config) {
  return {.path = config.records_file,
          .rank = static_cast<int>(config.rank),
          .size = static_cast<int>(config.size),
          .from = static_cast<std::uint64_t>(config.records_from_step),
          .until = static_cast<std::uint64_t>(config.records_until_step)};
}

}  // namespace

// Only `progress` has threads that use the other members. It is ended before any of them is destroyed.
struct Engine::Parts {
  Parts(std::unique_ptr<Mesh> mesh_of_world, const Config& config, std::span<const BackendRow> backends,
        MayOthersCall may_others_call)
      : mesh(std::move(mesh_of_world)),
        recorder(std::make_shared<Recorder>()),
        world{*mesh, config, *recorder, backends},
        recorded_steps(steps_of(config), recorder, world.logger),
        progress(world, std::move(may_others_call)) {
    if (world.logger.is_on(LogLevel::kDebug)) {
      const BlockSignals blocked;  // inherited by its thread
      call_log.emplace(recorder, world.logger);
    }
  }
  ~Parts() {
    leave();  // even if another thread is in leave() already
    world.wake->end();
  }

  OperationPtr submit(Submission&& submission, Operation::Callback callback, OpHandle* handle);
  bool prepare(Submission& submission, OpHandle* handle);
  void advise(const Staged& staged);
  void await_results_before_leaving();
  void leave();

  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Mesh> mesh;
  const std::shared_ptr<Recorder> recorder;
  WorldParts world;
  std::atomic<bool> has_had_device{false};  // a call with tensors on one
  std::atomic<bool> is_leaving{false};
  std::mutex timeline_mutex;
  std::unique_ptr<Timeline> timeline;        // rank 0's
  std::optional<std::string> timeline_path;  // on all ranks, so that all refuse another
  RecordedSteps recorded_steps;              // for the launcher's timelines of all ranks
  std::optional<CallLog> call_log;           // if the level is debug or trace
  ProgressThreads progress;
};

std::unique_ptr<Engine> Engine::create(std::unique_ptr<Mesh> mesh, const Config& config,
                                       std::span<const BackendRow> backends, MayOthersCall may_others_call) {
  return std::unique_ptr<Engine>(new Engine(std::move(mesh), config, backends, std::move(may_others_call)));
}

Engine::Engine(std::unique_ptr<Mesh> mesh, const Config& config, std::span<const BackendRow> backends,
               MayOthersCall may_others_call)
    : parts_(std::make_unique<Parts>(std::move(mesh), config, backends, std::move(may_others_call))) {}
Engine::~Engine() = default;

// --- the world

int Engine::rank() const { return parts_->mesh->rank(); }
int Engine::size() const { return parts_->mesh->size(); }
const PeerInfo& Engine::peer(int rank) const { return parts_->mesh->peer(rank); }
bool Engine::shares_memory_with_all() const { return parts_->mesh->arena() != nullptr || size() == 1; }

std::vector<int> Engine::ranks_of(std::uint32_t process_set) const {
  const Ranks ranks = parts_->world.sets.ranks(process_set);
  return ranks ? *ranks : std::vector<int>{};
}
Result<std::uint32_t> Engine::form_set(std::vector<int> ranks, std::uint32_t nth) {
  const Result<std::uint32_t> id = parts_->world.sets.form(rank(), std::move(ranks), nth);
  if (id.ok()) parts_->world.logger.info([&] { return set_text(id.value(), ranks_of(id.value())); });
  return id;
}
std::uint32_t Engine::pair_with(int peer) const {
  const bool is_other = peer >= 0 && peer < size() && peer != rank() && size() <= kMaxPairRank;
  return is_other ? pair_of(rank(), peer) : 0;
}

std::shared_ptr<SharedRegions> Engine::shared_regions() const {
  const SharedArena* arena = parts_->mesh->arena();
  return arena != nullptr ? arena->shared_regions() : nullptr;
}
std::vector<Candidate> Engine::candidates(Collective collective, std::size_t n_bytes) const {
  return parts_->progress.held([&](const ProgressLoop& loop) REQUIRES(progress_lock) {
    return loop.first_lane().data().candidates(collective, n_bytes);
  });
}
std::string_view Engine::agreement(Collective collective, std::size_t n_bytes) const {
  return parts_->progress.held([&](const ProgressLoop& loop) REQUIRES(progress_lock) {
    return loop.first_lane().agreement(collective, n_bytes);
  });
}

std::uint64_t Engine::n_bytes_in_place() const {
  const SharedArena* arena = parts_->mesh->arena();
  return arena != nullptr ? arena->regions().n_bytes_in_place() : 0;
}
std::uint64_t Engine::n_direct() const { return parts_->world.n_direct.load(std::memory_order_relaxed); }
std::uint64_t Engine::n_lookups() const { return parts_->world.names.ops.n_lookups(); }
bool Engine::has_failed() const { return parts_->world.has_failed.load(); }
std::uint64_t Engine::n_captured_calls() { return Staged::n_captured(); }

// --- calls

Engine::OperationPtr Engine::submit(const Call& call, Operation::Callback callback, OpHandle* handle) {
  WorldParts& world = parts_->world;
  const LaneId lane = lane_id(call.process_set, call.lane);
  const bool may_be_known = call.is_cacheable && can_be_repeated(call) && is_lane(call.process_set, call.lane) &&
                            world.sets.ranks(call.process_set) != nullptr;
  PersistentOp* op = may_be_known ? world.names.ops.take_known(lane, call.name, handle) : nullptr;
  std::unique_ptr<Request> request = op != nullptr ? op->request_again(call) : nullptr;
  if (op != nullptr && request == nullptr) std::exchange(op, nullptr)->release();
  if (request == nullptr) request = std::make_unique<Request>(make_request(call));
  return parts_->submit({.request = std::move(request), .op = op}, std::move(callback), handle);
}

// A submission that holds its name is prepared already.
Engine::OperationPtr Engine::Parts::submit(Submission&& submission, Operation::Callback callback, OpHandle* handle) {
  const auto operation = submission.operation = std::make_shared<Operation>();
  operation->set_rare(info(submission.request->signature.collective).subject == Subject::kSets);
  submission.stages.note(Stage::kSubmitted);
  submission.stages.is_recorded = recorder->is_on();
  CallbackThreads& callbacks = progress.callbacks();
  if (callback) {
    operation->when_done(submission.request->calls_back_directly ? std::move(callback)
                                                                 : on_own_thread(callbacks, std::move(callback)));
  }
  if (submission.op != nullptr || prepare(submission, handle)) progress.submit(std::move(submission));
  callbacks.flush();
  return operation;
}

// Returns false if the call has failed and must not be submitted.
bool Engine::Parts::prepare(Submission& submission, OpHandle* handle) {
  const auto refuse = [&](const Status& why) {
    submission.operation->refuse(why);
    return false;
  };
  Request& request = *submission.request;
  if (Status status = ciranda::prepare(request, mesh->rank(), world.sets); !status.ok()) return refuse(status);
  if (first_on_device(request) < request.memory.size()) {
    Result<std::unique_ptr<Staged>> staged = Staged::make(request, {.backends = world.backends,
                                                                    .sets = world.sets,
                                                                    .rank = mesh->rank(),
                                                                    .expected = world.way_expected,
                                                                    .chunk_bytes = Staged::chunk_bytes(world.config),
                                                                    .wake = world.wake});
    if (!staged.ok()) return refuse(staged.status());
    submission.staged = std::move(staged).value();
    if (request.home == kStagedHome || !ciranda::shares_memory_with_all(*mesh)) advise(*submission.staged);
    submission.operation->set_events({submission.staged->idle_event()});
  }
  if (submission.staged == nullptr || submission.staged->is_staged()) submission.scratch = move_repeated(request);
  const bool has_no_name_yet = is_numbered(request);
  const LaneId lane = lane_id(request.process_set, request.lane);
  if (!has_no_name_yet) submission.op = world.names.ops.take(lane, request.name, handle);
  if (submission.op == nullptr && !has_no_name_yet) {
    refuse(duplicate(request, mesh->rank()));
    if (request.signature.collective == Collective::kJoin) return false;
    // The other ranks learn of the duplicate through the log: it is submitted with an operation that no caller has.
    submission.operation = std::make_shared<Operation>();
    submission.stages = {};
    request.memory.clear();
    if (request.process_set == kWorldSet) world.has_failed.store(true);  // already now, before this rank's next call
  }
  return true;
}

// Warns by device_advice() at the first call with tensors on a device. Where calls may go by peer, their ranks compare
// what they use before the first one (Backend::advice).
void Engine::Parts::advise(const Staged& staged) {
  if (has_had_device.load(std::memory_order_relaxed) || has_had_device.exchange(true)) return;
  const std::string advice = device_advice(*mesh, staged.place(), staged.device());
  if (!advice.empty()) world.logger.warning(advice);
}

Engine::OperationPtr Engine::run(const Call& call, OpHandle* handle) {
  if (const auto repeated = repeat(call, handle)) return *repeated;
  Call awaited = call;
  awaited.hints.is_awaited = true;
  return submit(awaited, nullptr, handle);
}

// Neither arms nor disarms the mesh: see ProgressThreads::at_once().
std::optional<Engine::OperationPtr> Engine::repeat(const Call& call, OpHandle* handle) {
  if (!can_be_repeated(call)) return std::nullopt;
  Stages stages;
  stages.is_recorded = parts_->recorder->is_on();
  const bool is_timed = stages.is_recorded || parts_->world.counters.is_due(call.collective);
  if (is_timed) stages.note(Stage::kSubmitted);
  std::optional<OperationPtr> repeated;
  parts_->progress.at_once([&](ProgressLoop& loop, int n_looks) REQUIRES(progress_lock) {
    repeated = loop.repeat(call, handle, is_timed ? &stages : nullptr, n_looks);
  });
  return repeated;
}

Status Engine::wait(const OperationPtr& operation, const Interrupted& interrupted, Deadline deadline) {
  if (Status status = may("wait"); !status.ok()) return status;
  if (operation->is_done()) return operation->status();
  ProgressThreads& progress = parts_->progress;
  Waiting waiting(progress.waits());
  LongWait long_wait(progress.long_waits());
  // `interrupted` is called before each sleep: a signal that arrives while this thread runs the progress loop
  // interrupts no system call. A signal that arrives just before the system call is noticed when the call returns.
  bool is_late = false;
  // Whether a call without an answer fails, at the stall limit, before `time`: until it fails, the thread does not
  // continue by itself.
  const auto is_before = [&](const Deadline& time) {
    const auto patience = stall_limits(parts_->world.config).shutdown;
    return !time || (patience.count() > 0 && std::chrono::steady_clock::now() + patience < *time);
  };
  std::chrono::nanoseconds slept{0};
  std::chrono::nanoseconds until_look = operation->is_rare() ? kFirstLookAtRare : kLookInterval;
  while (!progress.run_until_done(*operation, deadline, waiting)) {
    const auto asleep = std::chrono::steady_clock::now();
    is_late = deadline && asleep >= *deadline;
    if (is_late || (interrupted && interrupted())) break;
    if (operation->sleep_until_done(at_most(until_look, deadline))) break;
    slept += std::chrono::steady_clock::now() - asleep;
    if (slept < until_look || !is_before(deadline)) continue;
    until_look = std::min<std::chrono::nanoseconds>(2 * until_look, kLookInterval);
    long_wait.begin();
    progress.look_whether_all_wait();
  }
  const bool is_given_up = long_wait.is_long() && !operation->is_done();
  long_wait.end();
  if (is_given_up) progress.wait_no_longer();
  if (operation->is_done()) return operation->status();
  return is_late ? Status::timeout("the operation was not done in time") : Status::aborted("the wait was interrupted");
}

Status Engine::await_results(const Interrupted& interrupted) {
  while (true) {
    const Result<bool> are_there = parts_->world.unended.await(kResultsInterval);
    if (!are_there.ok()) return are_there.status();
    if (are_there.value()) return Status::ok_status();
    if (interrupted && interrupted()) return Status::aborted("the wait was interrupted");
  }
}

void Engine::when_done(const OperationPtr& operation, Operation::Callback callback) {
  operation->when_done([waiting = std::make_shared<Waiting>(parts_->progress.waits()),
                        callback = std::move(callback)](const Operation& done) {
    waiting->end();
    callback(done);
  });
  if (!operation->is_done()) parts_->progress.run_in_passing(true);
}

void Engine::call_back(const OperationPtr& operation, Operation::Callback callback) {
  CallbackThreads& callbacks = parts_->progress.callbacks();
  operation->when_done(on_own_thread(callbacks, std::move(callback)));
  if (!operation->is_done()) parts_->progress.run_in_passing(false);  // an awaited call is reported to other ranks now
  callbacks.flush();                                                  // for a call that is done already
}

bool Engine::poll(const OperationPtr& operation) {
  if (!operation->is_done()) parts_->progress.run_in_passing(true);
  return operation->is_done();
}

// --- recording

std::unique_ptr<Recording> Engine::record() const { return std::make_unique<Recording>(parts_->recorder); }

void Engine::count_step() {
  parts_->world.counters.count_step();
  parts_->world.note_memory();
  parts_->world.logger.count_step();
  if (parts_->call_log) parts_->call_log->count_step();
  parts_->recorded_steps.count_step();
}
const CounterPage& Engine::counter_page() const { return parts_->world.counters.page(); }

Status Engine::start_timeline(const std::string& path, bool marks_cycles) {
  const std::lock_guard lock(parts_->timeline_mutex);
  std::optional<std::string>& begun = parts_->timeline_path;
  const std::string file = whole_path(path);
  if (begun) {
    return *begun == file ? Status::ok_status()
                          : Status::invalid_argument("a timeline is being recorded already, in '" + *begun +
                                                     "'; call stop_timeline() before you start one in '" + path + "'");
  }
  if (rank() == 0) {
    const BlockSignals blocked;  // inherited by its thread
    auto timeline = Timeline::create({path}, std::make_unique<TraceFormat>(rank(), marks_cycles), parts_->recorder,
                                     parts_->world.logger);
    if (!timeline.ok()) return timeline.status();
    parts_->timeline = std::move(timeline).value();
  }
  begun = file;
  return Status::ok_status();
}

void Engine::stop_timeline() {
  const std::lock_guard lock(parts_->timeline_mutex);
  parts_->timeline.reset();
  parts_->timeline_path.reset();
}

void Engine::start_records(const std::string& path) { parts_->recorded_steps.start(path); }
void Engine::stop_records() { parts_->recorded_steps.stop(); }

// --- the end

void Engine::shutdown() {
  if (may("shut down").ok()) parts_->leave();
}

// Calls that are done may be under way on devices, and other ranks need this one for theirs.
void Engine::Parts::await_results_before_leaving() {
  const auto give_up = std::chrono::steady_clock::now() + kLongestResults;
  while (std::chrono::steady_clock::now() < give_up) {
    const Result<bool> are_there = world.unended.await(kResultsInterval);
    if (!are_there.ok() || are_there.value()) return;
  }
  world.logger.warning("this rank leaves, although results of calls by NCCL are not there after " +
                       std::to_string(kLongestResults.count()) + " s: they are void, here and on other ranks");
}

void Engine::Parts::leave() {
  if (!is_leaving.exchange(true)) await_results_before_leaving();
  if (progress.end()) {
    const std::lock_guard lock(timeline_mutex);
    timeline.reset();
    recorded_steps.end();
    if (call_log) call_log->end();
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - begin;
    // Written after the lines that are queued already; finish() returns when all are written.
    world.logger.later(LogLevel::kInfo, [&] { return left_text(world.counters.page(), age.count()); });
  }
  progress.callbacks().finish();
}

}  // namespace ciranda
