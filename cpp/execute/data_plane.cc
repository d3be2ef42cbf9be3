#include "execute/data_plane.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/size_text.hpp"
#include "execute/allgather_numbers.hpp"
#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

std::string text_of(const NativeBackend::Tuned& tuned) {
  const Candidate& chosen = tuned.chosen;
  std::string text = "allreduces of " + size_text(tuned.most_bytes / 2) + " to " + size_text(tuned.most_bytes) +
                     " were tried, and go by " + std::string(chosen.name);
  if (chosen.segment_bytes > 0) text += " in segments of " + size_text(chosen.segment_bytes);
  if (chosen.taken_us) text += ", which took " + std::to_string(static_cast<std::int64_t>(*chosen.taken_us)) + " us";
  return text + (tuned.is_by_model ? ", as expected" : "");
}

}  // namespace

bool goes_by_nccl(const Participant::Execute& entry) {
  return !entry.requests.empty() && is_by_nccl(entry.requests.front().way);
}

DataPlane::DataPlane(Mesh& mesh, InFlight& in_flight, Backends backends, ArenaOptions arena, OnDevices on_devices,
                     const Logger& logger)
    : mesh_(mesh),
      in_flight_(in_flight),
      logger_(logger),
      expected_(on_devices.expected),
      chunk_bytes_(on_devices.chunk_bytes),
      turns_(on_devices.turns),
      unended_(on_devices.unended),
      backends_(std::move(backends)),
      consistency_(in_flight, mesh),
      is_arena_for_devices_(arena.is_for_devices) {
  if (mesh.arena() != nullptr || mesh.size() == 1 || arena.slot_bytes == 0) return;
  arena_.emplace(mesh, arena.slot_bytes, logger);
  is_arena_settled_ = false;
}

void DataPlane::enqueue(Participant::Execute entry) {
  for (const Participant::Ready& ready : entry.requests) in_flight_.begin(ready.ticket);
  queue_.push_back(std::move(entry));
}

// Excludes ranks that have joined: they do not contribute, and an average counts only the other ranks, unless the call
// divides by all.
void DataPlane::leave_out_absent() {
  const auto& requests = queue_.front().requests;
  if (requests.empty() || !requests.front().absence) return;
  const std::vector<int> present = contributors(queue_.front(), mesh_.size());
  const bool divides_by_all = requests.front().absence->signature.divides_by_all;
  for (Plan& plan : work_.plans) {
    plan.contributors = present;
    if (!divides_by_all) plan.n_average = static_cast<int>(present.size());
  }
}

void DataPlane::take(Work work) {
  work_ = std::move(work);
  n_begun_ = 0;
  leave_out_absent();
  if (is_on_device(way_)) order_on_devices();
  if (is_in_chunks_) cut();
}

// Whether the plans of the front entry are cut, so that copies from and to devices go on meanwhile. The same on all
// ranks, those with tensors in host memory too. Adasum needs whole tensors, and results that are compared may turn out
// to be wrong.
bool DataPlane::may_go_in_chunks() const {
  const Participant::Execute& entry = queue_.front();
  if (entry.requests.empty() || entry.requests.front().way == Way::kHost || may_go_by_peer()) return false;
  const Signature& signature = in_flight_.at(entry.requests.front().ticket).request->signature;
  const bool needs_whole = info(signature.collective).is_reduction && !info(signature.op).is_elementwise;
  return chunk_bytes_ > 0 && entry.check == Check::kNone && !needs_whole;
}

void DataPlane::go_in_chunks() {
  is_in_chunks_ = true;
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Submission& entry = in_flight_.at(ready.ticket);
    if (entry.staged != nullptr) blocks_.add(*entry.staged);
  }
}

void DataPlane::cut() {
  std::vector<Plan> chunks;
  for (Plan& plan : work_.plans) {
    std::ranges::move(std::move(plan).in_chunks(chunk_bytes_, mesh_.size()), std::back_inserter(chunks));
  }
  work_.plans = std::move(chunks);
}

Result<bool> DataPlane::may_start(const Plan& plan) const {
  return is_in_chunks_ ? blocks_.has_inputs(plan) : Result<bool>(true);
}

// The last plan that has begun has ended.
void DataPlane::end_plan() {
  if (is_in_chunks_) blocks_.put_results(work_.plans[n_begun_ - 1]);
}

// Plans on devices come after the events of their calls, and keep the calls' memory in use.
void DataPlane::order_on_devices() {
  if (work_.plans.empty()) return;
  std::vector<DeviceEventPtr> after;
  std::vector<std::shared_ptr<void>> holds;
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Submission& entry = in_flight_.at(ready.ticket);
    if (entry.staged == nullptr) continue;  // this rank has joined
    for (const DeviceEventPtr& event : entry.staged->after()) after.push_back(event);
    holds.push_back(entry.staged->hold());
    for (const OutputBuffer& output : entry.operation->outputs()) holds.push_back(output.data);
  }
  for (Plan& plan : work_.plans) {
    if (plan.place.is_host()) continue;
    plan.after = after;
    plan.holds = holds;
  }
}

Result<bool> DataPlane::step() {
  if (queue_.empty()) return false;
  if (is_ending_) return end();
  if (!has_begun_) {
    if (turn() == Turns::State::kAwaited || turn() == Turns::State::kGiven) return false;
    if (cannot_be_captured()) {
      refuse_capture();
      return true;
    }
    if (!may_go_by_peer()) {
      if (Status status = use(Way::kStaged); !status.ok()) return status;
      if (may_go_in_chunks()) {
        go_in_chunks();
      } else {
        const Result<bool> ready = has_inputs();
        if (!ready.ok() || !ready.value()) return ready;
      }
    }
    Result<Work> work = begin();
    if (!work.ok()) return work.status();
    take(std::move(work).value());
    has_begun_ = true;
  }
  if (running_) {
    const Progress progress = running_->step();
    if (progress == Progress::kStuck) {
      const Status status = running_->status();
      return status.ok() ? Result<bool>(false) : of_this_rank(status);
    }
    if (progress == Progress::kMoved) return true;
    note_work();
    running_.reset();
    end_plan();
    const Result<bool> started = start_next();
    return started.ok() ? Result<bool>(true) : started;  // the peers may wait for what the collective has done last
  }
  return start_next();
}

// Of the collective that is done.
void DataPlane::note_work() {
  const std::shared_ptr<DeviceWork> work = running_->device_work();
  if (work == nullptr) return;
  results_.push_back(work);
  const std::string what = describe_current();
  awaited_results_.push_back({n_executed_, what, work});
  unended_.add(what, work);
}

Result<bool> DataPlane::look_at_results() {
  if (!lost_.ok()) return lost_;
  const std::size_t n_before = awaited_results_.size();
  while (!awaited_results_.empty()) {
    const DeviceWork& first = *awaited_results_.front().work;
    const bool has_ended = first.has_ended();
    if (Status status = first.status(); !status.ok()) return of_this_rank(status);
    if (!has_ended) break;
    awaited_results_.pop_front();
  }
  const bool has_moved = awaited_results_.size() < n_before;
  if (has_moved) unended_.forget_ended();
  return has_moved;
}

// The checksums of the front entry's results are of what is there.
bool DataPlane::must_await_results() const { return awaits_results() && is_checked(queue_.front()) && !has_checked_; }

// What is part of graphs has no results yet.
bool DataPlane::is_checked(const Participant::Execute& entry) const {
  return entry.check != Check::kNone && !entry.requests.empty() && entry.requests.front().way != Way::kGraph;
}

// Whether the inputs of this rank have arrived from its devices. Returns an error if a device has failed.
Result<bool> DataPlane::has_inputs() const {
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Staged* staged = in_flight_.at(ready.ticket).staged.get();
    if (staged == nullptr) continue;
    if (!staged->is_here()) return false;
    if (Status status = staged->status(); !status.ok()) return status;
  }
  return true;
}

Status DataPlane::combine(const Participant::Execute& entry, std::span<const Payload> inputs) {
  Result<Work> made = make_plans(entry, in_flight_, mesh_);
  if (!made.ok()) return made.status();
  const std::vector<Plan>& plans = made.value().plans;
  std::vector<const std::byte*> from;
  for (const Payload& input : inputs) {
    const std::span<const std::byte> bytes = input.bytes();
    if (plans.size() == 1 && bytes.size() == plans.front().n_bytes) from.push_back(bytes.data());
  }
  if (from.size() != static_cast<std::size_t>(mesh_.size())) {
    return Status::internal("the inputs of all ranks do not fit " + describe(entry));
  }
  backends_.native().combine(plans.front(), from);
  return Status::ok_status();
}

Result<Work> DataPlane::begin() {
  for (const Participant::Ready& ready : queue_.front().requests) in_flight_.note(ready.ticket, Stage::kStarted);
  const auto work = [this]() REQUIRES(progress_lock) {
    if (!may_go_by_peer()) return plan();
    return peer_of_lane_ ? begin_on_way() : settle_peer();
  };
  const bool has_use = !queue_.front().requests.empty() && (!is_arena_for_devices_ || may_go_by_peer());
  if (is_arena_settled_ || !has_use) return work();
  is_arena_settled_ = true;
  return arena_->settle([this, work]() REQUIRES(progress_lock) {
    if (SharedArena* const arena = arena_->arena()) {
      is_arena_for_devices_ ? backends_.use_on_devices(*arena) : backends_.native().use(*arena);
    }
    return work();
  });
}

// Whether the front entry goes by the memory of devices: the log says so, it has its turn if it needs one, and this
// lane can, or has not settled that yet. With ranks that have joined it must go as the log says. The same on all ranks.
bool DataPlane::may_go_by_peer() const {
  const auto& requests = queue_.front().requests;
  if (requests.empty() || !is_on_device(requests.front().way) || turn() == Turns::State::kNever) return false;
  if (!peer_of_lane_) return true;
  return peer_of_lane_->ok() && (!requests.front().absence || goes_as_asked_);
}

// Whether the front entry is to be part of graphs, and cannot, as this lane has no communicator of NCCL's. The same on
// all ranks.
bool DataPlane::cannot_be_captured() const {
  const auto& requests = queue_.front().requests;
  if (requests.empty() || requests.front().way != Way::kGraph) return false;
  return !may_go_by_peer() || !peer_of_lane_ || !goes_as_asked_;
}

void DataPlane::refuse_capture() {
  for (const Participant::Ready& ready : queue_.front().requests) {
    Submission& entry = in_flight_.at(ready.ticket);
    entry.outcome = Status::invalid_argument(call_text(*entry.request) +
                                             ": its stream is being captured into a CUDA graph, of which it cannot be "
                                             "part, since NCCL is not used or no call by it has been made in this "
                                             "process set and lane: make one before the capture");
  }
  finish();
}

// Where this rank's tensors of the front entry lie. REQUIRES: may_go_by_peer(), so they lie on one device.
Place DataPlane::place() const {
  const Staged* const staged = in_flight_.at(queue_.front().requests.front().ticket).staged.get();
  return staged == nullptr ? place_of_lane_ : staged->place();
}

// The backend of this rank's device. REQUIRES: as above.
Backend& DataPlane::peer() { return backends_.at(place()); }

// Settles, before the lane's first entry by peer, whether its ranks can use each other's device memory.
Result<Work> DataPlane::settle_peer() {
  backends_.share_arena();
  place_of_lane_ = place();
  running_ = peer().settle(place_of_lane_, queue_.front().requests.front().way);
  return Work{
      .plans = {}, .continue_with = [this]() REQUIRES(progress_lock) {
        peer_of_lane_ = peer().usable();
        if (!peer_of_lane_->ok()) expected_.was_told();
        if (peer_of_lane_->kind() == ErrorKind::kInternal && expected_.is_news(peer_of_lane_->message())) {
          logger_.warning("tensors on GPUs are staged in host memory, since the ranks cannot exchange them in " +
                          ("the GPUs' memory: " + peer_of_lane_->message()));
        }
        const bool is_of_world = expected_.is_of_world(static_cast<std::size_t>(mesh_.size()));
        const std::string advice = is_of_world ? peer().advice() : "";
        if (!advice.empty() && expected_.is_news(advice)) logger_.warning(advice);
        const Status detour = peer().detour();
        goes_as_asked_ = detour.ok();
        if (detour.kind() == ErrorKind::kInternal && expected_.is_news(detour.message())) {
          logger_.warning(detour.message());
        }
        return begin_on_way();
      }};
}

Result<Work> DataPlane::begin_on_way() {
  if (Status status = use(may_go_by_peer() ? queue_.front().requests.front().way : Way::kStaged); !status.ok())
    return status;
  if (may_go_in_chunks()) {
    go_in_chunks();
    return plan();
  }
  return Work{.plans = {},
              .continue_with = [this] { return plan(); },
              .may_continue = [this]() REQUIRES(progress_lock) { return has_inputs(); }};
}

// Sets the way of the front entry for this rank's tensors on devices.
Status DataPlane::use(Way way) {
  way_ = way;
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Submission& entry = in_flight_.at(ready.ticket);
    if (entry.staged == nullptr) {
      if (is_on_device(way)) help_on_device(*entry.request);
      continue;
    }
    expected_.went(*entry.request, static_cast<std::size_t>(mesh_.size()), way);
    if (way == Way::kStaged && expected_.is_to_be_told()) {
      logger_.warning(describe_current() + " is staged in host memory, although CIRANDA_GPU_WAY is " +
                      expected_.setting() + ": " + std::string(expected_.what_goes()));
    }
    if (Status status = entry.staged->use(way, *entry.request); !status.ok()) return of_this_rank(status);
    if (const std::string why = entry.staged->why_slow(); !why.empty() && expected_.is_first_slow()) {
      logger_.warning(describe_current() + " and others are staged in pageable memory, which takes longer: " + why);
    }
  }
  return Status::ok_status();
}

// This rank has joined: the backend needs no tensors of it, but its device.
void DataPlane::help_on_device(Request& request) const {
  for (TensorMemory& memory : request.memory) memory = {nullptr, nullptr, place_of_lane_};
}

Result<Work> DataPlane::plan() { return make_plans(queue_.front(), in_flight_, mesh_); }

// The error that all ranks get if a device of this rank has failed: names this rank.
Status DataPlane::of_this_rank(const Status& why) const {
  return Status::internal(mesh_.peer(mesh_.rank()).text() + ": " + why.message());
}

Result<bool> DataPlane::start_next() {
  bool has_moved = false;
  while (!running_) {
    while (!running_ && n_begun_ < work_.plans.size()) {
      const Plan& plan = work_.plans[n_begun_];
      const Result<bool> may = may_start(plan);
      if (!may.ok()) return may;
      if (!may.value()) return has_moved;
      ++n_begun_;
      start(plan);
      if (!running_) end_plan();
      has_moved = true;
    }
    if (running_) break;
    if (!work_.continue_with) {
      if (must_await_results()) return false;
      if (begin_check() || share_news()) continue;
      break;
    }
    if (work_.may_continue) {
      const Result<bool> may = work_.may_continue();
      if (!may.ok() || !may.value()) return may;
    }
    Result<Work> next = work_.continue_with();
    if (!next.ok()) return next.status();
    take(std::move(next).value());
  }
  return running_ ? true : end();
}

// The plans of an entry may use several algorithms, for instance one to exchange the numbers of rows. The entry is
// counted with the algorithm that moves the most bytes. Plans beside the entry's own, to compare results or to exchange
// times, do not count.
void DataPlane::start(const Plan& plan) {
  Started started = backends_.at(plan.place).start(plan);
  running_ = std::move(started.collective);
  if (is_beside_ || plan.n_bytes < n_by_algorithm_) return;
  n_by_algorithm_ = plan.n_bytes;
  algorithm_ = started.algorithm;
}

// After the plans of an entry: remembers its results, and may compare all remembered ones. Returns false if there is
// nothing to remember, or if that was done already.
bool DataPlane::begin_check() {
  const Participant::Execute& entry = queue_.front();
  if (!is_checked(entry) || std::exchange(has_checked_, true)) return false;
  is_beside_ = true;
  take(consistency_.check(entry));
  return true;
}

// Exchanges the native backend's measurements once there are enough of them, which is at the same entry on all ranks.
bool DataPlane::share_news() {
  sent_ = backends_.native().news();
  if (sent_.empty()) return false;
  is_beside_ = true;
  take(allgather_numbers(sent_, mesh_.size(), received_, [this] {
    for (const NativeBackend::Tuned& tuned : backends_.native().conclude(received_)) {
      logger_.later(LogLevel::kDebug, [&] { return text_of(tuned); });
    }
    return Result<Work>(Work{});
  }));
  return true;
}

// The entry is executed. Puts its results to this rank's devices once, and finishes when they are in the queues there.
Result<bool> DataPlane::end() {
  if (!std::exchange(is_ending_, true)) put_results();
  Result<bool> are_queued = are_results_queued();
  if (are_queued.ok() && are_queued.value()) finish();
  return are_queued;
}

void DataPlane::put_results() {
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Submission& entry = in_flight_.at(ready.ticket);
    if (entry.staged != nullptr && entry.outcome.ok()) entry.staged->put_results(*entry.operation);
  }
}

// Returns an error if a device has failed.
Result<bool> DataPlane::are_results_queued() const {
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Submission& entry = in_flight_.at(ready.ticket);
    if (entry.staged == nullptr || !entry.outcome.ok()) continue;
    if (!entry.staged->are_results_queued()) return false;
    if (Status status = entry.staged->results_status(); !status.ok()) return status;
  }
  return true;
}

void DataPlane::finish() {
  const Participant::Execute done = std::move(queue_.front());
  const std::string_view algorithm = algorithm_;
  const std::vector<DeviceEventPtr> results = std::exchange(results_, {});
  work_ = {};
  queue_.pop_front();
  forget_entry();
  if (goes_by_nccl(done)) turns_.end(n_executed_);
  ++n_executed_;
  for (const Participant::Ready& ready : done.requests) {
    Submission& entry = in_flight_.at(ready.ticket);
    entry.stages.algorithm = algorithm;
    if (entry.staged != nullptr && entry.outcome.ok())
      entry.outcome = entry.staged->conclude(*entry.operation, results);
    in_flight_.complete(ready.ticket, Status(entry.outcome));
  }
}

void DataPlane::forget_entry() {
  has_begun_ = has_checked_ = is_beside_ = is_ending_ = is_in_chunks_ = false;
  blocks_.clear();
  way_ = Way::kHost;
  algorithm_ = {};
  n_by_algorithm_ = 0;
}

std::size_t DataPlane::n_bytes_under_way() const {
  std::size_t n_bytes = 0;
  for (const Participant::Execute& entry : queue_) {
    for (const Participant::Ready& ready : entry.requests) {
      n_bytes += in_flight_.at(ready.ticket).request->signature.n_bytes();
    }
  }
  return n_bytes;
}

// Whether an entry from there on has begun. The results of those before it may be under way: these are left alone.
bool DataPlane::may_have_begun(std::uint64_t log_index) const {
  if (n_executed_ < log_index) return false;
  return has_begun_ || !awaits_results() || awaited_results_.back().log_index >= log_index;
}

void DataPlane::give_up_from(std::uint64_t log_index, const Status& status) {
  turns_.give_up_from(log_index);
  if (may_have_begun(log_index)) backends_.abort();
  if (awaits_results() && awaited_results_.back().log_index >= log_index) lost_ = status;
  while (!queue_.empty() && n_executed_ + queue_.size() > log_index) {
    const Participant::Execute entry = std::move(queue_.back());
    if (queue_.size() == 1) {
      running_.reset();
      work_ = {};
      results_ = {};
      forget_entry();
    }
    queue_.pop_back();
    for (const Participant::Ready& ready : entry.requests) in_flight_.complete(ready.ticket, status);
  }
}

std::string DataPlane::awaited_device() const {
  if (queue_.empty()) return "";
  if (running_) return running_->awaited_device();
  if (has_begun_ && !is_ending_ && must_await_results()) return awaited_results_.front().work->where();
  if (has_begun_ && !is_ending_ && n_begun_ < work_.plans.size()) {
    const Staged* const staged = blocks_.awaited_by(work_.plans[n_begun_]);
    return staged == nullptr ? "" : staged->where();
  }
  if (has_begun_ && !is_ending_ && !work_.may_continue) return "";
  for (const Participant::Ready& ready : queue_.front().requests) {
    const Staged* staged = in_flight_.at(ready.ticket).staged.get();
    if (staged == nullptr || (is_ending_ ? staged->are_results_queued() : staged->is_here())) continue;
    return staged->where();
  }
  return "";
}

std::vector<int> DataPlane::awaited() const { return running_ ? running_->awaited() : std::vector<int>{}; }

std::string DataPlane::describe(const Participant::Execute& entry) const {
  if (entry.requests.empty()) return "nothing";
  const Request& request = *in_flight_.at(entry.requests.front().ticket).request;
  std::string text = call_text(request);
  if (entry.requests.size() > 1) text += " and " + std::to_string(entry.requests.size() - 1) + " more";
  return text;
}

}  // namespace ciranda
