#include "agree/crowd.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "agree/frames.hpp"
#include "agree/signatures.hpp"

namespace ciranda::testing {
namespace {

using Clock = std::chrono::steady_clock;

// As an engine's, after which it has what it holds reported.
constexpr std::chrono::milliseconds kMostHeld{20};

CoordinatorOptions coordinator_options(const CrowdOptions& options) {
  CoordinatorOptions coordinator;
  coordinator.size = options.n_ranks;
  coordinator.reports_groups = options.reports_groups;
  if (options.reports_groups) coordinator.most_groups = options.most_groups;
  return coordinator;
}

std::vector<std::string> hosts_of(const CrowdOptions& options) {
  std::vector<std::string> hosts;
  hosts.reserve(static_cast<std::size_t>(options.n_ranks));
  for (int rank = 0; rank < options.n_ranks; ++rank) hosts.push_back(std::to_string(rank / options.ranks_per_host));
  return hosts;
}

std::string name_of(std::size_t tensor) { return "allreduce.model.layers." + std::to_string(tensor) + ".weight"; }

Request request_of(std::size_t tensor, const CrowdOptions& options) {
  Request request;
  request.name = name_of(tensor);
  const auto n_elements = static_cast<std::int64_t>(options.step_bytes / sizeof(float)) / options.n_tensors;
  request.signature =
      n_elements > 0 ? allreduce({n_elements}) : allreduce({256, 64 + static_cast<std::int64_t>(tensor % 7)});
  request.is_deferrable = true;
  return request;
}

Message decoded(std::span<const std::byte> frame) {
  return decode_body(frame.subspan(kFrameHeaderBytes)).value().message;
}

}  // namespace

Crowd::Crowd(const CrowdOptions& options)
    : options_(options),
      random_(options.seed),
      tree_(hosts_of(options), options.fan_out),
      coordinator_(coordinator_options(options)) {
  for (int rank = 0; rank < options.n_ranks; ++rank) {
    Process& made = processes_.emplace_back(rank);
    if (!options.has_relays || !tree_.is_relay(rank)) continue;
    made.relay.emplace(tree_, rank);
    made.below.assign(tree_.ranks(rank).begin() + 1, tree_.ranks(rank).end());
    for (const int below : tree_.relays_below(rank)) made.below.push_back(below);
  }
}

StepCost Crowd::step() {
  begin_step();
  run();
  Nanoseconds all_know{0};
  for (const Process& one : processes_) {
    all_know = std::max(all_know, one.got_down);
    cost_.most_from_a_host = std::max(cost_.most_from_a_host, one.n_sent_far);
    if (&one != &processes_.front()) cost_.relaying = std::max(cost_.relaying, one.computed);
  }
  cost_.wait = all_know - last_reported_;
  check_step();
  return cost_;
}

void Crowd::begin_step() {
  cost_ = {};
  coordinated_.clear();
  last_reported_ = now_ = Nanoseconds{0};
  for (int rank = 0; rank < options_.n_ranks; ++rank) {
    Process& one = process(rank);
    one.executed.clear();
    one.sent_up = one.got_down = one.computed = Nanoseconds{0};
    one.n_sent_far = 0;
    one.turns = turns_of_a_rank();
    const Nanoseconds begin{
        static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(options_.skew.count() + 1))};
    const auto n_turns = static_cast<std::int64_t>(one.turns.size());
    last_reported_ = std::max(last_reported_, begin + (n_turns - 1) * options_.turn_interval);
    for (std::size_t turn = 0; turn < one.turns.size(); ++turn) {
      schedule(
          {begin + static_cast<std::int64_t>(turn) * options_.turn_interval, 0, Event::Kind::kTurn, rank, 0, turn, {}});
    }
  }
}

void Crowd::schedule(Event event) {
  event.order = n_events_++;
  events_.push(std::move(event));
}

void Crowd::run() {
  while (broken_.empty()) {
    if (events_.empty()) let_go();
    if (events_.empty()) return;
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (event.kind == Event::Kind::kTurn) take_turn(event.process, event.turn);
    if (event.kind == Event::Kind::kMessage) receive(event);
    if (event.kind == Event::Kind::kDecide) decide(event.process);
  }
}

// Whoever still gathers when nothing else happens does not do so for ever.
void Crowd::let_go() {
  for (int rank = 0; rank < options_.n_ranks; ++rank) {
    if (!process(rank).relay || !process(rank).relay->holds_any()) continue;
    ++cost_.n_let_go;
    now_ += kMostHeld;
    process(rank).relay->let_go();
    return decide_soon(rank);
  }
}

void Crowd::charge(int rank, Nanoseconds StepCost::*part, Clock::time_point began) {
  const Nanoseconds spent = Clock::now() - began;
  process(rank).computed += spent;
  if (rank != 0) return;
  cost_.*part += spent;
  if (now_ > last_reported_) cost_.tail += spent;
}

// --- ranks

void Crowd::take_turn(int rank, std::size_t turn) {
  Process& self = process(rank);
  ReadyMessage ready;
  GroupsMessage groups;
  for (const std::size_t tensor : self.turns[turn]) {
    Message message = self.participant.submit(request_of(tensor, options_), tensor);
    if (const auto* known = std::get_if<ReadyMessage>(&message)) {
      ready.items.insert(ready.items.end(), known->items.begin(), known->items.end());
    } else if (const auto* group = std::get_if<GroupsMessage>(&message)) {
      groups.plan = group->plan;
      groups.groups.push_back(group->groups.front());
    } else {
      report(rank, message);
    }
  }
  const bool is_last = turn + 1 == self.turns.size();
  if (is_last) {
    const ReadyMessage rest = self.participant.held().release();
    ready.items.insert(ready.items.end(), rest.items.begin(), rest.items.end());
  }
  if (!ready.items.empty()) report(rank, ready);
  if (!groups.groups.empty()) report(rank, groups);
  if (is_last) report(rank, WaitingMessage{});
}

std::vector<std::vector<std::size_t>> Crowd::turns_of_a_rank() {
  std::vector<std::size_t> order(static_cast<std::size_t>(options_.n_tensors));
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto window = static_cast<std::size_t>(options_.shuffle_window);
  for (std::size_t begin = 0; begin < order.size(); begin += window) {
    const std::size_t end = std::min(order.size(), begin + window);
    std::shuffle(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end),
                 random_);
  }
  std::vector<std::vector<std::size_t>> turns;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % static_cast<std::size_t>(options_.tensors_per_turn) == 0) turns.emplace_back();
    turns.back().push_back(order[i]);
  }
  return turns;
}

void Crowd::apply(int rank, const LogMessage& log) {
  Process& self = process(rank);
  for (const LogEntry& entry : log.entries) {
    auto action = self.participant.apply(entry);
    if (!action.ok()) return must(action.status());
    if (const auto* execute = std::get_if<Participant::Execute>(&action.value())) {
      for (const auto& ready : execute->requests) self.executed.push_back(ready.ticket);
    } else if (const auto* planned = std::get_if<Participant::Planned>(&action.value())) {
      if (!planned->released.items.empty()) report(rank, planned->released);
      report(rank, planned->known);
    } else {
      return must(Status::internal("an entry of the log that executes nothing"));
    }
  }
}

// --- the network

Nanoseconds Crowd::delay(int from, int to) {
  if (from == to) return Nanoseconds{0};
  const Nanoseconds mean = host_of(from) == host_of(to) ? options_.host_delay : options_.network_delay;
  return mean / 2 + Nanoseconds{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(mean.count()))};
}

void Crowd::report(int rank, const Message& message) {
  send_up(rank, options_.has_relays ? tree_.relay_of(rank) : 0, message);
}

void Crowd::send_up(int from, int to, const Message& message) {
  Process& self = process(from);
  const bool is_own = from == to;                                 // nothing is sent
  self.sent_up = std::max(self.sent_up, now_ + delay(from, to));  // one connection: nothing overtakes
  auto frame = std::make_shared<Frame>();
  append_frame(0, message, *frame);
  if (host_of(from) != host_of(to)) ++process(host_of(from) * options_.ranks_per_host).n_sent_far;
  if (to == 0 && !is_own) {
    ++cost_.n_messages_in;
    cost_.n_bytes_in += frame->size();
  }
  schedule({is_own ? now_ : self.sent_up, 0, Event::Kind::kMessage, to, from, 0, std::move(frame)});
}

void Crowd::send_down(int from, int to, std::shared_ptr<const Frame> frame) {
  if (from == 0) {
    ++cost_.n_messages_out;
    cost_.n_bytes_out += frame->size();
  }
  Process& other = process(to);
  other.got_down = std::max(other.got_down, now_ + delay(from, to));
  schedule({other.got_down, 0, Event::Kind::kMessage, to, from, 0, std::move(frame)});
}

void Crowd::receive(const Event& event) {
  const int rank = event.process;
  const auto began = Clock::now();
  Message message = decoded(*event.frame);
  if (const auto* log = std::get_if<LogMessage>(&message)) {
    if (process(rank).relay) pass_down(rank, *log);
    return apply(rank, *log);
  }
  hear(rank, event.from, std::move(message));
  charge(rank, &StepCost::reading, began);
  if (rank == 0) coordinated_.push_back(event);
  decide_soon(rank);
}

void Crowd::hear(int rank, int from, Message message) {
  constexpr TimePoint kNow{};  // nothing stalls here
  Process& self = process(rank);
  must(self.relay ? self.relay->on_message(from, std::move(message))
                  : coordinator_.on_message(from, std::move(message), kNow));
}

// --- relays and the coordinator

void Crowd::decide_soon(int rank) {
  if (std::exchange(process(rank).is_about_to_decide, true)) return;
  const Nanoseconds turn = rank == 0 ? options_.coordinator_turn : options_.relay_turn;
  schedule({now_ + turn, 0, Event::Kind::kDecide, rank, 0, 0, {}});
}

void Crowd::decide(int rank) {
  Process& self = process(rank);
  self.is_about_to_decide = false;
  if (self.relay && self.relay->has_news()) {
    const auto began = Clock::now();
    RelayedMessage news = self.relay->take();
    if (rank == 0) {
      must(coordinator_.on_relayed(news, TimePoint{}));
      charge(rank, &StepCost::reading, began);
    } else {
      send_up(rank, tree_.parent(rank), std::move(news));
      charge(rank, &StepCost::reading, began);
    }
  }
  if (rank != 0) return;
  coordinated_.push_back({now_, 0, Event::Kind::kDecide, 0, 0, 0, {}});
  write();
}

void Crowd::write() {
  const auto began = Clock::now();
  const LogMessage log{coordinator_.take_entries(true)};
  charge(0, &StepCost::writing, began);
  if (log.entries.empty()) return;
  cost_.n_entries += log.entries.size();
  if (process(0).relay) {
    pass_down(0, log);
  } else {
    const auto sent = Clock::now();
    const auto frame = written(0, log);
    charge(0, &StepCost::sending, sent);
    for (int rank = 1; rank < options_.n_ranks; ++rank) send_down(0, rank, frame);
  }
  process(0).got_down = now_;
  apply(0, log);
}

// What all below it get. The engine makes one for each.
std::shared_ptr<Crowd::Frame> Crowd::written(int rank, const LogMessage& log) {
  Process& self = process(rank);
  if (self.relay) self.relay->pass_down(log);
  const std::size_t n_below = self.relay ? self.below.size() : processes_.size() - 1;
  auto frame = std::make_shared<Frame>();
  for (std::size_t i = 0; i < n_below; ++i) {
    frame->clear();
    append_frame(0, log, *frame);
  }
  return frame;
}

void Crowd::pass_down(int rank, const LogMessage& log) {
  const auto began = Clock::now();
  const auto frame = written(rank, log);
  charge(rank, &StepCost::sending, began);
  for (const int below : process(rank).below) send_down(rank, below, frame);
}

Nanoseconds Crowd::coordinate_again() {
  Process& self = process(0);
  std::size_t n_entries = 0;
  const auto began = Clock::now();
  for (const Event& event : coordinated_) {
    if (event.kind == Event::Kind::kMessage) {
      hear(0, event.from, decoded(*event.frame));
      continue;
    }
    if (self.relay && self.relay->has_news()) must(coordinator_.on_relayed(self.relay->take(), TimePoint{}));
    const LogMessage log{coordinator_.take_entries(true)};
    n_entries += log.entries.size();
    if (!log.entries.empty()) written(0, log);
  }
  const Nanoseconds spent = Clock::now() - began;
  if (n_entries != cost_.n_entries) must(Status::internal("the same messages brought another log"));
  return spent;
}

// --- what must be

void Crowd::must(const Status& status) {
  if (!status.ok() && broken_.empty()) broken_ = status.message();
}

void Crowd::check_step() {
  const std::vector<std::uint64_t>& first = processes_.front().executed;
  if (first.size() != static_cast<std::size_t>(options_.n_tensors)) must(Status::internal("rank 0 missed a tensor"));
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (processes_[rank].executed != first || processes_[rank].participant.calls().any()) {
      must(Status::internal("rank " + std::to_string(rank) + " did not execute what rank 0 did"));
    }
  }
}

}  // namespace ciranda::testing
