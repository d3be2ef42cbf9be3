#include "negotiate/crowd.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "negotiate/codec.hpp"
#include "negotiate/signatures.hpp"

namespace ciranda::testing {
namespace {

using Clock = std::chrono::steady_clock;

CoordinatorOptions coordinator_options(const CrowdOptions& options) {
  CoordinatorOptions coordinator;
  coordinator.size = options.n_ranks;
  return coordinator;
}

std::string name_of(std::size_t tensor) { return "allreduce.model.layers." + std::to_string(tensor) + ".weight"; }

Request request_of(std::size_t tensor) {
  Request request;
  request.name = name_of(tensor);
  request.signature = allreduce({256, 64 + static_cast<std::int64_t>(tensor % 7)});
  request.is_deferrable = true;
  return request;
}

Envelope decoded(std::span<const std::byte> frame) { return decode_frame(frame.subspan(kFrameHeaderBytes)).value(); }

}  // namespace

Crowd::Crowd(const CrowdOptions& options)
    : options_(options),
      random_(options.seed),
      coordinator_(coordinator_options(options)),
      log_arrival_(static_cast<std::size_t>(options.n_ranks)) {
  for (int rank = 0; rank < options.n_ranks; ++rank) ranks_.emplace_back(rank);
}

StepCost Crowd::step() {
  StepCost cost;
  const std::vector<Announcement> announcements = announce_all(cost);
  for (std::size_t begin = 0; begin < announcements.size();) {
    const Nanoseconds now = announcements[begin].arrival + options_.coordinator_turn;
    const auto began = Clock::now();
    while (begin < announcements.size() && announcements[begin].arrival < now) read(announcements[begin++]);
    const Nanoseconds reading = Clock::now() - began;
    const Nanoseconds rest = write(cost, now);
    cost.reading += reading;
    cost.tail = reading + rest;
  }
  cost.wait = *std::max_element(log_arrival_.begin(), log_arrival_.end()) - last_announced_;
  check_step();
  return cost;
}

// In the order in which they arrive.
std::vector<Crowd::Announcement> Crowd::announce_all(StepCost& cost) {
  std::vector<Announcement> announcements;
  last_announced_ = Nanoseconds{0};
  for (int rank = 0; rank < options_.n_ranks; ++rank) announce(rank, announcements, cost);
  std::stable_sort(announcements.begin(), announcements.end(),
                   [](const Announcement& a, const Announcement& b) { return a.arrival < b.arrival; });
  return announcements;
}

void Crowd::announce(int rank, std::vector<Announcement>& announcements, StepCost& cost) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  Nanoseconds now{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(options_.skew.count() + 1))};
  Nanoseconds arrival{0};
  const auto send = [&](const Message& message) {
    Announcement announcement{arrival, rank, {}};
    append_frame(0, message, announcement.frame);
    if (rank != 0) {
      ++cost.n_messages_in;
      cost.n_bytes_in += announcement.frame.size();
    }
    announcements.push_back(std::move(announcement));
  };
  for (const auto& turn : turns_of_a_rank()) {
    arrival = std::max(arrival, now + delay(rank));  // one connection: nothing overtakes
    ReadyMessage ready;
    for (const std::size_t tensor : turn) {
      Message message = self.participant.submit(request_of(tensor), tensor);
      if (const auto* known = std::get_if<ReadyMessage>(&message)) {
        ready.items.push_back(known->items.front());
      } else {
        send(message);
      }
    }
    if (!ready.items.empty()) send(ready);
    now += options_.turn_interval;
  }
  send(WaitingMessage{});
  last_announced_ = std::max(last_announced_, now - options_.turn_interval);
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

Nanoseconds Crowd::delay(int rank) {
  if (rank == 0) return Nanoseconds{0};
  const Nanoseconds mean = rank < options_.ranks_per_host ? options_.host_delay : options_.network_delay;
  return mean / 2 + Nanoseconds{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(mean.count()))};
}

void Crowd::read(const Announcement& announcement) {
  constexpr TimePoint kNow{};  // nothing stalls here
  const int rank = announcement.rank;
  Message message = decoded(announcement.frame).message;
  if (auto* request = std::get_if<RequestMessage>(&message)) {
    must(coordinator_.on_request(rank, std::move(*request), kNow));
  } else if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    must(coordinator_.on_ready(rank, *ready, kNow));
  } else {
    coordinator_.on_waiting(rank);
  }
}

// Returns the time that it took, less that of the ranks.
Nanoseconds Crowd::write(StepCost& cost, Nanoseconds now) {
  const auto began = Clock::now();
  LogMessage log{coordinator_.take_entries(true)};
  const auto written = Clock::now();
  cost.writing += written - began;
  if (log.entries.empty()) return written - began;
  std::vector<std::byte> frame;
  for (int rank = 1; rank < options_.n_ranks; ++rank) {
    frame.clear();
    append_frame(0, log, frame);
  }
  const auto sent = Clock::now();
  cost.sending += sent - written;
  cost.n_entries += log.entries.size();
  cost.n_messages_out += ranks_.size() - 1;
  cost.n_bytes_out += frame.size() * (ranks_.size() - 1);
  apply(ranks_.front(), log);
  log_arrival_.front() = now;
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    apply(ranks_[rank], std::get<LogMessage>(decoded(frame).message));
    log_arrival_[rank] = std::max(log_arrival_[rank], now + delay(static_cast<int>(rank)));
  }
  return sent - began;
}

void Crowd::apply(Rank& rank, const LogMessage& log) {
  for (const LogEntry& entry : log.entries) {
    auto action = rank.participant.apply(entry);
    if (!action.ok()) return must(action.status());
    const auto* execute = std::get_if<Participant::Execute>(&action.value());
    if (execute == nullptr) return must(Status::internal("an entry of the log that executes nothing"));
    for (const auto& ready : execute->requests) rank.executed.push_back(ready.ticket);
  }
}

void Crowd::must(const Status& status) {
  if (!status.ok() && broken_.empty()) broken_ = status.message();
}

void Crowd::check_step() {
  const std::vector<std::uint64_t> first = ranks_.front().executed;
  if (first.size() != static_cast<std::size_t>(options_.n_tensors)) must(Status::internal("rank 0 missed a tensor"));
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].executed != first || ranks_[rank].participant.has_pending()) {
      must(Status::internal("rank " + std::to_string(rank) + " did not execute what rank 0 did"));
    }
    ranks_[rank].executed.clear();
    log_arrival_[rank] = Nanoseconds{0};
  }
}

}  // namespace ciranda::testing
