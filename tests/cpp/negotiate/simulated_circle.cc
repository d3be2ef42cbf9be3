#include "negotiate/simulated_circle.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "negotiate/frames.hpp"

namespace ciranda::testing {
namespace {

constexpr std::uint64_t kAllNames = ~std::uint64_t{0};
constexpr std::uint64_t kCoordinator = 1;
// Relays that share a bit only look less apart than they are.
std::uint64_t relay_bit(int rank) { return std::uint64_t{2} << rank % 62; }
std::uint64_t bit_of(const std::string& name) { return std::uint64_t{1} << std::hash<std::string>()(name) % 64; }

constexpr TimePoint kNow{};  // stalls have tests of their own
constexpr Participant::Ticket kJoinTicket = Participant::kNoTicket - 1;

CoordinatorOptions sized(CoordinatorOptions options, std::size_t size) {
  options.size = static_cast<int>(size);
  return options;
}

// Null stands for a rank that has joined.
Participant::FirstDims first_dims_of(const std::vector<const Signature*>& by_rank) {
  const Signature& any = **std::find_if(by_rank.begin(), by_rank.end(), [](const auto* s) { return s != nullptr; });
  if (!info(any.collective).first_dim_may_differ) return {};
  Participant::FirstDims dims(any.tensors.size());
  for (std::size_t tensor = 0; tensor < dims.size(); ++tensor) {
    for (const Signature* signature : by_rank) {
      dims[tensor].push_back(signature == nullptr ? 0 : signature->tensors[tensor].shape.front());
    }
  }
  return dims;
}

}  // namespace

std::string to_string(const Event& event) {
  const std::string rank = std::to_string(event.rank);
  switch (event.kind) {
    case Event::Kind::kStep: return "rank " + rank + " steps";
    case Event::Kind::kDeliver: return "rank " + rank + " is heard";
    case Event::Kind::kTake: return "the log is written";
    case Event::Kind::kTakeBusy: return "the log is written while the wire is busy";
    case Event::Kind::kApply: return "rank " + rank + " applies";
    case Event::Kind::kRelease: return "rank " + rank + " holds nothing any longer";
    case Event::Kind::kPassOn: return "relay " + rank + " passes on";
    case Event::Kind::kPassLog: return "relay " + rank + " passes the log down";
    case Event::Kind::kLetGo: return "relay " + rank + " lets go";
  }
  return "?";
}

bool Footprint::is_apart_from(const Footprint& other) const {
  if ((deciders & other.deciders) != 0) return false;
  if (rank < 0 || rank != other.rank) return true;
  return (names & other.names) == 0;
}

SimulatedCircle::SimulatedCircle(const std::vector<Script>& scripts, const CircleOptions& options)
    : scripts_(&scripts), options_(options), coordinator_(sized(options.coordinator, scripts.size())) {
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) ranks_.emplace_back(static_cast<int>(rank));
  if (options_.hosts.empty()) return;
  tree_.emplace(options_.hosts, options_.fan_out);
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
    if (tree_->is_relay(static_cast<int>(rank))) ranks_[rank].relay.emplace(*tree_, static_cast<int>(rank));
  }
}

// How many entries of the log have come to a rank, or to the relays below the one above.
std::size_t SimulatedCircle::n_known_to(const Rank& rank) const {
  if (!tree_) return log_.size();
  return ranks_[static_cast<std::size_t>(tree_->relay_of(static_cast<int>(rank.at)))].n_passed_down;
}

std::size_t SimulatedCircle::n_known_above(const Rank& relay) const {
  const int parent = tree_->parent(static_cast<int>(relay.at));
  return parent < 0 ? log_.size() : ranks_[static_cast<std::size_t>(parent)].n_passed_down;
}

std::uint64_t SimulatedCircle::decider_above(int relay) const {
  const int parent = tree_->parent(relay);
  return parent < 0 ? kCoordinator : relay_bit(parent);
}

bool SimulatedCircle::has_step(const Rank& rank) const {
  return !rank.is_waiting && rank.next_step < (*scripts_)[rank.at].size();
}

std::vector<Event> SimulatedCircle::possible_events() const {
  std::vector<Event> events;
  if (!broken_.empty()) return events;
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    const Rank& rank = ranks_[at];
    if (has_step(rank)) events.push_back({Event::Kind::kStep, static_cast<int>(at)});
    if (!rank.announced.empty()) events.push_back({Event::Kind::kDeliver, static_cast<int>(at)});
    if (!rank.relay && rank.n_applied < n_known_to(rank)) events.push_back({Event::Kind::kApply, static_cast<int>(at)});
    if (!rank.relay) continue;
    if (rank.relay->has_news()) events.push_back({Event::Kind::kPassOn, static_cast<int>(at)});
    if (rank.n_passed_down < n_known_above(rank)) events.push_back({Event::Kind::kPassLog, static_cast<int>(at)});
  }
  if (has_news_) events.push_back({Event::Kind::kTake});
  for (std::size_t at = 0; at < ranks_.size() && events.empty(); ++at) {
    if (ranks_[at].participant.holds_any()) events.push_back({Event::Kind::kRelease, static_cast<int>(at)});
  }
  for (std::size_t at = 0; at < ranks_.size() && events.empty(); ++at) {
    if (relay_holds_any(static_cast<int>(at))) events.push_back({Event::Kind::kLetGo, static_cast<int>(at)});
  }
  return events;
}

void SimulatedCircle::begin_with(std::size_t n_steps) {
  for (bool moved = true; moved && broken_.empty();) {
    moved = false;
    for (const Event& event : possible_events()) {
      const bool is_step = event.kind == Event::Kind::kStep;
      if (is_step && ranks_[static_cast<std::size_t>(event.rank)].next_step >= n_steps) continue;
      perform(event);
      moved = true;
      break;
    }
  }
}

Footprint SimulatedCircle::footprint(const Event& event) const {
  const std::uint64_t own = event.rank >= 0 && ranks_[static_cast<std::size_t>(event.rank)].relay
                                ? relay_bit(event.rank)
                                : 0;  // which hears at once
  if (event.kind == Event::Kind::kRelease) return {own, event.rank, kAllNames};
  switch (event.kind) {
    case Event::Kind::kDeliver: return {tree_ ? relay_bit(tree_->relay_of(event.rank)) : kCoordinator, -1, 0};
    case Event::Kind::kPassOn: return {relay_bit(event.rank) | decider_above(event.rank), -1, 0};
    case Event::Kind::kPassLog: return {relay_bit(event.rank), event.rank, kAllNames};
    case Event::Kind::kLetGo: return {relay_bit(event.rank), -1, 0};
    case Event::Kind::kTake:
    case Event::Kind::kTakeBusy: return {kCoordinator, -1, 0};
    default: break;
  }
  const auto at = static_cast<std::size_t>(event.rank);
  const Rank& rank = ranks_[at];
  if (event.kind == Event::Kind::kStep) {
    const auto* call = std::get_if<Call>(&(*scripts_)[at][rank.next_step]);
    const bool is_alone = call != nullptr && !rank.participant.holds_any();
    return {own, event.rank, is_alone ? bit_of(call->name) : kAllNames};
  }
  return {0, event.rank, rank.is_waiting ? kAllNames : names_in_entry_[rank.n_applied]};
}

void SimulatedCircle::perform(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kStep: return step(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kDeliver: return deliver(event.rank);
    case Event::Kind::kTake: return take(true);
    case Event::Kind::kTakeBusy: return take(false);
    case Event::Kind::kApply: return apply(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kRelease: return release(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kPassOn: return pass_on(event.rank);
    case Event::Kind::kPassLog: return pass_log(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kLetGo: return ranks_[static_cast<std::size_t>(event.rank)].relay->let_go();
  }
}

void SimulatedCircle::step(Rank& rank) {
  const Step& next = (*scripts_)[rank.at][rank.next_step++];
  if (std::holds_alternative<Wait>(next)) {
    rank.is_waiting = rank.participant.has_pending();
    if (rank.is_waiting) announce(rank, WaitingMessage{});
    return;
  }
  if (std::holds_alternative<Join>(next)) {
    rank.is_waiting = true;
    ++rank.n_joins;
    announce(rank, rank.participant.join(kJoinTicket));
    return;
  }
  const Call& call = std::get<Call>(next);
  Request request;
  request.name = call.name;
  request.signature = call.signature;
  request.is_cacheable = call.is_cacheable;
  request.is_deferrable = call.is_deferrable;
  Message message = rank.participant.submit(request, rank.uses.size());
  const bool is_duplicate = std::holds_alternative<DuplicateMessage>(message);
  announce(rank, std::move(message));
  rank.uses.push_back(
      {call.name, rank.n_uses[call.name]++, rank.joined_last.size(), call.signature, is_duplicate, std::nullopt});
}

void SimulatedCircle::announce(Rank& rank, Message message) {
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    if (ready->items.empty()) return;  // held
  } else if (!std::holds_alternative<GroupsMessage>(message)) {
    release(rank);
  }
  send(rank, std::move(message));
}

// A relay hears its own rank at once.
void SimulatedCircle::send(Rank& rank, Message message) {
  if (rank.relay) return must(rank.relay->hear(static_cast<int>(rank.at), carry(message)));
  rank.announced.push_back(std::move(message));
}

void SimulatedCircle::release(Rank& rank) {
  if (rank.participant.holds_any()) send(rank, rank.participant.release());
}

void SimulatedCircle::deliver(int at) {
  Rank& rank = ranks_[static_cast<std::size_t>(at)];
  Message message = carry(rank.announced.front());
  rank.announced.pop_front();
  if (tree_) return must(ranks_[static_cast<std::size_t>(tree_->relay_of(at))].relay->hear(at, std::move(message)));
  must(coordinator_.on_message(at, std::move(message), kNow));
  has_news_ = true;
  if (options_.takes_eagerly) take(true);
}

void SimulatedCircle::pass_on(int at) {
  RelayedMessage message = std::get<RelayedMessage>(carry(ranks_[static_cast<std::size_t>(at)].relay->take()));
  const int parent = tree_->parent(at);
  if (parent >= 0) return must(ranks_[static_cast<std::size_t>(parent)].relay->hear(at, std::move(message)));
  for (const RelayedMessage::Item& item : message.items) n_groups_of_all_ += item.ranks.empty() ? 1 : 0;
  must(coordinator_.on_relayed(std::move(message), kNow));
  has_news_ = true;
  if (options_.takes_eagerly) take(true);
}

void SimulatedCircle::pass_log(Rank& relay) {
  relay.relay->pass_down({{log_[relay.n_passed_down++]}});
  apply(relay);
}

void SimulatedCircle::take(bool wire_is_idle) {
  LogMessage written{coordinator_.take_entries(wire_is_idle)};
  if (wire_is_idle) has_news_ = false;
  if (written.entries.empty()) return;
  Message carried = carry(written);
  for (LogEntry& entry : std::get<LogMessage>(carried).entries) append(std::move(entry));
}

void SimulatedCircle::append(LogEntry entry) {
  std::uint64_t names = 0;
  if (const auto* failure = std::get_if<FailEntry>(&entry)) names = bit_of(failure->name);
  if (const auto* execute = std::get_if<ExecuteEntry>(&entry)) {
    for (const ExecuteItem& item : execute->items) {
      const std::uint64_t name = item.is_defined_here ? bit_of(item.name) : name_of_slot_[item.slot];
      if (item.slot != kNoSlot) name_of_slot_[item.slot] = name;
      names |= name;
    }
  }
  if (const auto* plan = std::get_if<PlanEntry>(&entry)) {
    names = kAllNames;  // every rank may have to let go of what it holds
    names_in_group_.assign(plan->groups.size(), 0);
    for (std::size_t group = 0; group < plan->groups.size(); ++group) {
      for (const std::uint32_t slot : plan->groups[group]) names_in_group_[group] |= name_of_slot_[slot];
    }
  }
  if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) {
    ++n_group_entries_;
    for (const std::uint32_t group : groups->groups) names |= names_in_group_[group];
  }
  names_in_entry_.push_back(names);
  log_.push_back(std::move(entry));
}

void SimulatedCircle::apply(Rank& rank) {
  const std::size_t entry = rank.n_applied++;
  auto action = rank.participant.apply(log_[entry]);
  if (!action.ok()) return must(action.status());
  if (const auto* execute = std::get_if<Participant::Execute>(&action.value())) {
    for (const auto& ready : execute->requests) {
      if (ready.ticket == Participant::kNoTicket) {
        rank.executed.push_back("help with " + ready.absence->name);
        continue;
      }
      const Use& use = rank.uses[ready.ticket];
      rank.executed.push_back(use.name + "#" + std::to_string(use.nth));
      settle(rank, ready.ticket, {true, entry, {}, ready.first_dims ? *ready.first_dims : Participant::FirstDims{}});
    }
  } else if (const auto* joined = std::get_if<Participant::Joined>(&action.value())) {
    rank.joined_last.push_back(joined->last);
    rank.n_uses.clear();
    rank.is_waiting = false;
  } else if (auto* planned = std::get_if<Participant::Planned>(&action.value())) {
    if (!planned->released.items.empty()) send(rank, std::move(planned->released));
    send(rank, std::move(planned->known));
  } else {
    const auto& failure = std::get<Participant::Fail>(action.value());
    for (const auto ticket : failure.tickets) settle(rank, ticket, {false, entry, failure.status, {}});
  }
  if (rank.is_waiting && !rank.participant.has_pending()) rank.is_waiting = false;
}

void SimulatedCircle::settle(Rank& rank, Participant::Ticket ticket, Outcome outcome) {
  Use& use = rank.uses.at(ticket);
  if (use.outcome) broken_ = "'" + use.name + "' was answered twice on one rank";
  use.outcome = std::move(outcome);
}

Message SimulatedCircle::carry(const Message& message) {
  if (!options_.uses_codec) return message;
  std::vector<std::byte> frame;
  append_frame(0, message, frame);
  auto decoded = decode_body(std::span<const std::byte>(frame).subspan(kFrameHeaderBytes));
  must(decoded.status());
  return decoded.ok() ? std::move(decoded).value().message : message;
}

void SimulatedCircle::must(const Status& status) {
  if (!status.ok() && broken_.empty()) broken_ = status.message();
}

// --- what must have become of the calls

std::string SimulatedCircle::violation() const {
  if (!broken_.empty()) return broken_;
  if (std::string wrong = judge_joins(); !wrong.empty()) return wrong;
  std::map<std::tuple<std::size_t, std::string, std::size_t>, std::vector<const Use*>> rounds;
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    for (const Use& use : ranks_[at].uses) {
      auto& round = rounds[{use.epoch, use.name, use.nth}];
      round.resize(ranks_.size(), nullptr);
      round[at] = &use;
    }
  }
  for (const auto& [key, uses] : rounds) {
    if (std::string wrong = judge(std::get<0>(key), std::get<1>(key), std::get<2>(key), uses); !wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

// All executed the same number of entries in the same order (those that helped know only the name), and joins end when
// and only when all ranks have joined.
std::string SimulatedCircle::judge_joins() const {
  const Rank& first = ranks_.front();
  const auto is_same = [](const std::string& a, const std::string& b) {
    return a == b || a.starts_with("help") || b.starts_with("help");
  };
  std::size_t n_joined = first.n_joins;
  for (const Rank& rank : ranks_) {
    if (!std::equal(rank.executed.begin(), rank.executed.end(), first.executed.begin(), first.executed.end(),
                    is_same)) {
      return "ranks executed different things, or in different orders";
    }
    if (rank.joined_last != first.joined_last) return "ranks know different ranks as the last to join";
    n_joined = std::min(n_joined, rank.n_joins);
  }
  return first.joined_last.size() == n_joined ? "" : "joins ended before all ranks had joined, or not at all";
}

std::string SimulatedCircle::judge(std::size_t epoch, const std::string& name, std::size_t nth,
                                   const std::vector<const Use*>& uses) const {
  const std::string which = "use " + std::to_string(nth) + " of '" + name + "'";
  bool is_complete = true;
  bool is_bad = false;
  bool may_fail = false;
  const Use* first = nullptr;
  for (std::size_t at = 0; at < uses.size(); ++at) {
    const Use* use = uses[at];
    is_complete = is_complete && (use != nullptr || has_joined(at, epoch));
    if (use == nullptr) continue;
    if (first == nullptr) first = use;
    is_bad = is_bad || use->is_duplicate || !describe_mismatch(first->signature, 0, use->signature, 1).empty();
    may_fail = may_fail || is_bad || is_repeated(epoch, name, nth);
  }
  for (std::size_t at = 0; at < uses.size() && info(first->signature.collective).has_root; ++at) {
    const bool is_root_missing = uses[at] == nullptr && first->signature.root == static_cast<int>(at);
    if (is_root_missing && has_joined(at, epoch)) is_bad = may_fail = true;
  }
  if (is_complete) return judge_complete(which, uses, is_bad, may_fail);
  for (std::size_t at = 0; at < uses.size(); ++at) {
    if (uses[at] == nullptr) continue;
    const auto& outcome = uses[at]->outcome;
    if (outcome && outcome->is_executed) return which + " was executed although a rank never announced it";
    if (outcome && !may_fail) return which + " failed without a reason: " + outcome->status.message();
    if (!outcome && is_bad && earlier_are_answered(ranks_[at], *uses[at])) return which + " was left without its error";
  }
  return {};
}

// A duplicate call fails the one it repeats too, if it comes while that is open.
bool SimulatedCircle::is_repeated(std::size_t epoch, const std::string& name, std::size_t nth) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return std::any_of(rank.uses.begin(), rank.uses.end(), [&](const Use& use) {
      return use.is_duplicate && use.name == name && use.nth == nth + 1 && use.epoch == epoch;
    });
  });
}

// Answers come in the order of the calls, so an error waits for what the rank asked before under the same name.
bool SimulatedCircle::earlier_are_answered(const Rank& rank, const Use& use) {
  return std::all_of(rank.uses.begin(), rank.uses.end(), [&use](const Use& other) {
    return other.name != use.name || other.nth >= use.nth || other.outcome;
  });
}

std::string SimulatedCircle::judge_complete(const std::string& which, const std::vector<const Use*>& uses,
                                            bool must_fail, bool may_fail) const {
  std::vector<const Signature*> signatures;
  const Use* one = *std::find_if(uses.begin(), uses.end(), [](const Use* use) { return use != nullptr; });
  for (const Use* use : uses) {
    signatures.push_back(use == nullptr ? nullptr : &use->signature);
    if (use == nullptr) continue;
    if (!use->outcome) return which + " was never answered on some rank";
    if (use->outcome->is_executed && must_fail) return which + " was executed although it is wrong";
    if (!use->outcome->is_executed && !may_fail) return which + " failed: " + use->outcome->status.message();
  }
  const Outcome& first = *one->outcome;
  for (const Use* use : uses) {
    if (use == nullptr) continue;
    const Outcome& outcome = *use->outcome;
    if (outcome.is_executed != first.is_executed) {
      return which + " was executed on some ranks and failed on others";
    } else if (!outcome.is_executed) {
      if (outcome.status.message() != first.status.message() || outcome.status.kind() != first.status.kind()) {
        return which + " failed with different errors: " + outcome.status.message() + " / " + first.status.message();
      }
    } else if (outcome.entry != first.entry) {
      return which + " was executed by different entries of the log";
    } else if (outcome.first_dims != first_dims_of(signatures)) {
      return which + " was executed with wrong first dimensions";
    }
  }
  return {};
}

}  // namespace ciranda::testing
