#include "agree/simulated_world.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "agree/frames.hpp"

namespace ciranda::testing {
namespace {

constexpr std::uint64_t kAllNames = ~std::uint64_t{0};
constexpr std::uint64_t kCoordinator = 1;
constexpr std::uint64_t kDirectRounds = std::uint64_t{1} << 63;
// Relays that share a bit only look less apart than they are.
std::uint64_t relay_bit(int rank) { return std::uint64_t{2} << rank % 62; }
std::uint64_t bit_of(const std::string& name) { return std::uint64_t{1} << std::hash<std::string>()(name) % 64; }

// And not only for the coordinator.
bool is_for_first_rank(const Message& message) {
  return std::holds_alternative<InputMessage>(message) || std::holds_alternative<ByeMessage>(message) ||
         std::holds_alternative<NoMoreInputsMessage>(message);
}

constexpr TimePoint kAlways{};  // stalls have tests of their own
constexpr Ticket kJoinTicket = kNoTicket - 1;

CoordinatorOptions sized(CoordinatorOptions options, std::size_t size) {
  options.size = static_cast<int>(size);
  return options;
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
    case Event::Kind::kEnd: return "the lane is taken down";
    case Event::Kind::kLook: return "rank " + rank + " looks at its rounds";
    case Event::Kind::kLeaveRounds: return "rank " + rank + " leaves its rounds";
    case Event::Kind::kHear: return "rank " + rank + " hears rank " + std::to_string(event.from);
    case Event::Kind::kStand: return "rank " + rank + " says that it stands";
    case Event::Kind::kStall: return "what is open has waited for too long";
  }
  return "?";
}

bool Footprint::is_apart_from(const Footprint& other) const {
  if ((deciders & other.deciders) != 0) return false;
  if (rank < 0 || rank != other.rank) return true;
  return (names & other.names) == 0;
}

SimulatedWorld::SimulatedWorld(const std::vector<Script>& scripts, const WorldOptions& options)
    : scripts_(&scripts), options_(options), coordinator_(sized(options.coordinator, scripts.size())) {
  const std::size_t n_by_messages = goes_by_messages() ? scripts.size() : 0;
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) ranks_.emplace_back(static_cast<int>(rank), n_by_messages);
  if (options_.hosts.empty()) return;
  tree_.emplace(options_.hosts, options_.fan_out);
  for (std::size_t rank = 0; rank < scripts.size(); ++rank) {
    if (tree_->is_relay(static_cast<int>(rank))) ranks_[rank].relay.emplace(*tree_, static_cast<int>(rank));
  }
}

// How many entries of the log have come to a rank, or to the relays below the one above.
std::size_t SimulatedWorld::n_known_to(const Rank& rank) const {
  if (!tree_) return log_.size();
  return ranks_[static_cast<std::size_t>(tree_->relay_of(static_cast<int>(rank.at)))].n_passed_down;
}

std::size_t SimulatedWorld::n_known_above(const Rank& relay) const {
  const int parent = tree_->parent(static_cast<int>(relay.at));
  return parent < 0 ? log_.size() : ranks_[static_cast<std::size_t>(parent)].n_passed_down;
}

std::uint64_t SimulatedWorld::decider_above(int relay) const {
  const int parent = tree_->parent(relay);
  return parent < 0 ? kCoordinator : relay_bit(parent);
}

bool SimulatedWorld::has_step(const Rank& rank) const {
  return !rank.is_waiting && rank.next_step < (*scripts_)[rank.at].size();
}

std::vector<Event> SimulatedWorld::possible_events() const {
  std::vector<Event> events;
  if (!broken().empty()) return events;
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    const Rank& rank = ranks_[at];
    if (rank.has_left) continue;  // what it has sent still arrives
    if (has_step(rank)) events.push_back({Event::Kind::kStep, static_cast<int>(at)});
    if (has_news_of_rounds(rank)) events.push_back({Event::Kind::kLook, static_cast<int>(at)});
    if (!rank.rounds.empty()) events.push_back({Event::Kind::kLeaveRounds, static_cast<int>(at)});
    if (!rank.relay && rank.n_applied < n_known_to(rank)) events.push_back({Event::Kind::kApply, static_cast<int>(at)});
    for (std::size_t from = 0; from < rank.incoming.size(); ++from) {
      if (rank.incoming[from].empty()) continue;
      events.push_back({Event::Kind::kHear, static_cast<int>(at), static_cast<int>(from)});
    }
    if (const auto said = standing(rank); said && *said != rank.said) {
      events.push_back({Event::Kind::kStand, static_cast<int>(at)});
    }
    if (!rank.relay) continue;
    if (rank.relay->has_news()) events.push_back({Event::Kind::kPassOn, static_cast<int>(at)});
    if (rank.n_passed_down < n_known_above(rank)) events.push_back({Event::Kind::kPassLog, static_cast<int>(at)});
  }
  for (std::size_t at = 0; at < ranks_.size(); ++at) {
    const auto rank = static_cast<int>(at);
    if (!ranks_[at].reported.empty() && !has_left(tree_ ? tree_->relay_of(rank) : 0))
      events.push_back({Event::Kind::kDeliver, rank});
  }
  if (has_news_ && !has_left(0)) events.push_back({Event::Kind::kTake});
  if (n_stalls_ < options_.n_stalls && coordinator_.next_stall_check() && !has_left(0)) {
    events.push_back({Event::Kind::kStall});
  }
  for (std::size_t at = 0; at < ranks_.size() && events.empty(); ++at) {
    if (ranks_[at].participant.held().any() && !ranks_[at].has_left)
      events.push_back({Event::Kind::kRelease, static_cast<int>(at)});
  }
  for (std::size_t at = 0; at < ranks_.size() && events.empty(); ++at) {
    if (relay_holds_any(static_cast<int>(at)) && !ranks_[at].has_left)
      events.push_back({Event::Kind::kLetGo, static_cast<int>(at)});
  }
  if (options_.is_taken_down && !has_ended_ && !has_left(0)) events.push_back({Event::Kind::kEnd});
  return events;
}

bool SimulatedWorld::is_possible(const Event& event) const {
  if (!broken().empty()) return false;
  if (event.rank < 0) return !has_left(0);
  const Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
  switch (event.kind) {
    case Event::Kind::kDeliver: return !rank.reported.empty() && !has_left(tree_ ? tree_->relay_of(event.rank) : 0);
    case Event::Kind::kStep: return !rank.has_left && has_step(rank);
    case Event::Kind::kApply: return !rank.has_left && rank.n_applied < n_known_to(rank);
    case Event::Kind::kPassOn: return !rank.has_left && rank.relay->has_news();
    case Event::Kind::kPassLog: return !rank.has_left && rank.n_passed_down < n_known_above(rank);
    case Event::Kind::kRelease: return !rank.has_left && rank.participant.held().any();
    case Event::Kind::kLetGo: return !rank.has_left && relay_holds_any(event.rank);
    case Event::Kind::kStand: return !rank.has_left && standing(rank).has_value();
    default: return true;
  }
}

void SimulatedWorld::begin_with(std::size_t n_steps) {
  for (bool moved = true; moved && broken().empty();) {
    moved = false;
    for (const Event& event : possible_events()) {
      const bool is_step = event.kind == Event::Kind::kStep;
      if (event.kind == Event::Kind::kEnd || event.kind == Event::Kind::kStall) continue;
      if (is_step && ranks_[static_cast<std::size_t>(event.rank)].next_step >= n_steps) continue;
      perform(event);
      moved = true;
      break;
    }
  }
}

Footprint SimulatedWorld::footprint(const Event& event) const {
  const std::uint64_t own = event.rank >= 0 && ranks_[static_cast<std::size_t>(event.rank)].relay
                                ? relay_bit(event.rank)
                            : goes_by_messages() && event.rank == 0 ? kCoordinator
                                                                    : 0;  // which hears at once
  if (event.kind == Event::Kind::kRelease || event.kind == Event::Kind::kStand) return {own, event.rank, kAllNames};
  const auto names_of = [this](const Rank& rank, const Message& message) {
    const auto* input = std::get_if<InputMessage>(&message);
    return input == nullptr || rank.is_waiting ? kAllNames : name_of_id_.at(input->cache_id);
  };
  if (event.kind == Event::Kind::kHear) {
    const Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
    return {own, event.rank, names_of(rank, rank.incoming[static_cast<std::size_t>(event.from)].front())};
  }
  if (event.kind == Event::Kind::kDeliver && goes_by_messages()) {
    const Message& message = ranks_[static_cast<std::size_t>(event.rank)].reported.front();
    if (is_for_first_rank(message)) return {kCoordinator, 0, names_of(ranks_.front(), message)};
  }
  switch (event.kind) {
    case Event::Kind::kDeliver: return {tree_ ? relay_bit(tree_->relay_of(event.rank)) : kCoordinator, -1, 0};
    case Event::Kind::kPassOn: return {relay_bit(event.rank) | decider_above(event.rank), -1, 0};
    case Event::Kind::kPassLog: return {relay_bit(event.rank), event.rank, kAllNames};
    case Event::Kind::kLetGo: return {relay_bit(event.rank), -1, 0};
    case Event::Kind::kTake:
    case Event::Kind::kStall:
    case Event::Kind::kEnd:
    case Event::Kind::kTakeBusy: return {kCoordinator, -1, 0};
    case Event::Kind::kLook:
    case Event::Kind::kLeaveRounds: return {own | kDirectRounds, event.rank, kAllNames};
    default: break;
  }
  const auto at = static_cast<std::size_t>(event.rank);
  const Rank& rank = ranks_[at];
  const std::uint64_t rounds = options_.coordinator.direct == Direct::kInMemory ? kDirectRounds : 0;
  if (event.kind == Event::Kind::kStep) {
    const auto* call = std::get_if<ScriptedCall>(&(*scripts_)[at][rank.next_step]);
    const bool is_alone = call != nullptr && !rank.participant.held().any();
    return {own | rounds, event.rank, is_alone ? bit_of(call->name) : kAllNames};
  }
  // Only what was reported twice is closed when it is opened.
  const bool may_close =
      std::any_of(rank.uses.begin(), rank.uses.end(), [](const Use& use) { return use.is_duplicate && !use.outcome; });
  return {(may_close ? rounds : 0) | (goes_by_messages() ? own : 0), event.rank,
          rank.is_waiting ? kAllNames : names_in_entry_[rank.n_applied]};
}

void SimulatedWorld::perform(const Event& event) {
  if (is_message(event) && n_messages_++ == options_.lost) return lose(event);
  switch (event.kind) {
    case Event::Kind::kStep: return step(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kDeliver: return deliver(event.rank);
    case Event::Kind::kTake: return take(true);
    case Event::Kind::kTakeBusy: return take(false);
    case Event::Kind::kApply: return apply(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kRelease: return release(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kPassOn: return pass_on(event.rank);
    case Event::Kind::kPassLog: return pass_log(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kEnd: return end();
    case Event::Kind::kStall: return stall();
    case Event::Kind::kStand: return stand(ranks_[static_cast<std::size_t>(event.rank)]);
    case Event::Kind::kHear: {
      Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
      std::deque<Message>& incoming = rank.incoming[static_cast<std::size_t>(event.from)];
      const Message message = std::move(incoming.front());
      incoming.pop_front();
      return hear(rank, event.from, message);
    }
    case Event::Kind::kLook: return look_at_rounds(ranks_[static_cast<std::size_t>(event.rank)], false);
    case Event::Kind::kLeaveRounds: return look_at_rounds(ranks_[static_cast<std::size_t>(event.rank)], true);
    case Event::Kind::kLetGo: return ranks_[static_cast<std::size_t>(event.rank)].relay->let_go();
  }
}

void SimulatedWorld::step(Rank& rank) {
  const Step& next = (*scripts_)[rank.at][rank.next_step++];
  if (std::holds_alternative<Leave>(next)) {
    look_at_rounds(rank, true);
    if (goes_by_messages()) tell_others(rank, ByeMessage{{{0, rank.n_applied}}});
    rank.has_left = true;
    return;
  }
  if (rank.log_end) return;  // it would be refused at once
  if (std::holds_alternative<Wait>(next)) {
    rank.is_waiting = rank.participant.calls().any();
    const bool is_any_kept_back = !goes_by_messages() || rank.has_deferrable;
    if (rank.is_waiting && is_any_kept_back) report(rank, WaitingMessage{});
    return;
  }
  if (std::holds_alternative<Join>(next)) {
    if (rank.has_ended) return;
    look_at_rounds(rank, true);
    rank.is_waiting = true;
    ++rank.n_joins;
    report(rank, rank.participant.calls().join(kJoinTicket));
    return;
  }
  const ScriptedCall& call = std::get<ScriptedCall>(next);
  rank.said = {};
  if (rank.has_ended) return;  // it would be refused at once
  Request request;
  request.name = call.name;
  request.signature = call.signature;
  request.is_cacheable = call.is_cacheable;
  request.is_deferrable = call.is_deferrable;
  rank.has_deferrable = rank.has_deferrable || call.is_deferrable;
  const bool is_duplicate = has_pending(rank, call.name);
  if (is_duplicate) look_at_rounds(rank, true);
  const Ticket ticket = rank.uses.size();
  rank.uses.push_back(
      {call.name, rank.n_uses[call.name]++, rank.joined_last.size(), call.signature, false, std::nullopt});
  if (arrive_in_memory(rank, request, call.is_deferrable)) return;
  if (rank.participant.keep_duplicate(call.name, ticket)) {
    rank.uses.back().is_duplicate = true;
    return;
  }
  if (!is_duplicate && call.is_awaited && send_input(rank, request)) return;
  Message message = rank.participant.submit(request, ticket);
  rank.uses.back().is_duplicate = std::holds_alternative<DuplicateMessage>(message);
  report(rank, std::move(message));
}

bool SimulatedWorld::has_pending(const Rank& rank, const std::string& name) const {
  return std::any_of(rank.uses.begin(), rank.uses.end(),
                     [&name](const Use& use) { return use.name == name && !use.outcome; });
}

// --- rounds, as Lane does it

Arrivals SimulatedWorld::word(const DirectRound& round) const {
  return {words_[round.room.number], static_cast<int>(ranks_.size())};
}

bool SimulatedWorld::has_news_of_rounds(const Rank& rank) const {
  return std::any_of(rank.rounds.begin(), rank.rounds.end(), [this](const DirectRound& round) {
    return word(round).is_complete(round.number) || word(round).is_closed(round.number);
  });
}

namespace {

// Scripts number calls without a name, as AutoNames does.
bool is_without_name(const Request& request) { return !request.is_cacheable && is_unnamed(request.name); }

// Where ranks meet for the call that the request would be made of.
std::optional<DirectRound> place_to_repeat(NamedParticipant& participant, const Request& request) {
  const Signature& signature = request.signature;
  Shape shape = signature.tensors.front().shape;
  if (!signature.arguments.empty()) shape.front() = signature.arguments.front();
  const CallTensor tensor{.dtype = signature.tensors.front().dtype, .shape = shape};
  ciranda::Call call{{.collective = signature.collective, .op = signature.op, .root = signature.root}, request.name};
  call.tensors = {&tensor, 1};
  if (is_without_name(request)) return participant.unnamed().round_for(call, number_of(request.name));
  return participant.round_for(call);
}

bool is_same(const std::optional<DirectRound>& a, const std::optional<DirectRound>& b) {
  return a && b ? a->op == b->op && a->number == b->number && a->first_dims == b->first_dims : !a && !b;
}

}  // namespace

bool SimulatedWorld::arrive_in_memory(Rank& rank, const Request& request, bool is_deferrable) {
  const Ticket ticket = rank.uses.size() - 1;
  const bool has_no_name = is_without_name(request);
  if (has_no_name && rank.participant.unnamed().has_arrived()) look_at_rounds(rank, true);
  const bool may_be_call = !is_deferrable && !request.signature.tensors.empty();
  const auto repeated = may_be_call ? place_to_repeat(rank.participant, request) : std::nullopt;
  const auto round = is_deferrable ? std::nullopt
                     : has_no_name ? rank.participant.unnamed().arrive(request, ticket)
                                   : rank.participant.arrive(Direct::kInMemory, request, ticket);
  if (may_be_call && !is_same(repeated, round)) wrong_ = "'" + request.name + "' is repeated as another call";
  if (!round) {
    const auto avoided = rank.participant.avoid(has_no_name ? "" : request.name);
    if (avoided) word(*avoided).close(avoided->number);
    return false;
  }
  if (has_no_name) tags_[round->number][rank.at] = round->tag;
  if (word(*round).arrive(round->number)) {
    rank.rounds.push_back(*round);
  } else {
    report_missed(rank, *round->op);
  }
  return true;
}

// Whether all who have met without a name mean the same.
bool SimulatedWorld::agree(const DirectRound& round) {
  if (!round.is_unnamed()) return true;
  const auto& tags = tags_[round.number];
  return std::all_of(tags.begin(), tags.end(), [&](const auto& tag) { return tag.second == round.tag; });
}

void SimulatedWorld::report_missed(Rank& rank, PersistentOp& op) {
  if (!op.is_unnamed()) return report(rank, DirectRounds::missed(op));
  const Ticket ticket = rank.participant.unnamed().missed();
  Request request;
  request.name = rank.uses[ticket].name;
  request.signature = rank.uses[ticket].signature;
  request.is_cacheable = false;
  report(rank, rank.participant.submit(request, ticket));
}

void SimulatedWorld::look_at_rounds(Rank& rank, bool closes) {
  for (const DirectRound& round : std::exchange(rank.rounds, {})) {
    const bool is_complete = word(round).is_complete(round.number) || (closes && !word(round).close(round.number));
    if (is_complete && agree(round)) {
      const Ticket ticket = rank.participant.rounds().done(*round.op);
      ++rank.n_direct;
      const auto& first_dims = round.first_dims;
      settle(rank, ticket,
             {true, kMetAt + round.number * kRooms + round.room.number, {}, first_dims ? *first_dims : FirstDims{}});
    } else if (is_complete || closes || word(round).is_closed(round.number)) {
      report_missed(rank, *round.op);
      if (rank.is_waiting) report(rank, WaitingMessage{});
    } else {
      rank.rounds.push_back(round);
    }
  }
  if (rank.is_waiting && !rank.participant.calls().any()) rank.is_waiting = false;
}

// --- reports

void SimulatedWorld::report(Rank& rank, Message message) {
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    if (ready->items.empty()) return;  // held
  } else if (!std::holds_alternative<GroupsMessage>(message)) {
    release(rank);
  }
  send(rank, std::move(message));
}

// A relay hears its own rank at once.
void SimulatedWorld::send(Rank& rank, Message message) {
  if (rank.relay) return must(rank.relay->on_message(static_cast<int>(rank.at), carry(message)));
  if (goes_by_messages() && rank.at == 0) return be_heard(0, message);  // as the coordinator hears its own rank
  rank.reported.push_back(std::move(message));
}

void SimulatedWorld::release(Rank& rank) {
  if (rank.participant.held().any()) send(rank, rank.participant.held().release());
}

void SimulatedWorld::deliver(int at) {
  Rank& rank = ranks_[static_cast<std::size_t>(at)];
  Message message = carry(rank.reported.front());
  rank.reported.pop_front();
  if (is_for_first_rank(message)) {
    hear(ranks_.front(), at, message);
    if (!std::holds_alternative<InputMessage>(message)) return;
  }
  if (tree_)
    return must(ranks_[static_cast<std::size_t>(tree_->relay_of(at))].relay->on_message(at, std::move(message)));
  be_heard(at, std::move(message));
}

void SimulatedWorld::be_heard(int at, Message message) {
  if (has_ended_) return;  // it crossed the end on its way
  must(coordinator_.on_message(at, std::move(message), kAlways));
  has_news_ = true;
  if (options_.takes_eagerly) take(true);
}

void SimulatedWorld::pass_on(int at) {
  RelayedMessage message = std::get<RelayedMessage>(carry(ranks_[static_cast<std::size_t>(at)].relay->take()));
  const int parent = tree_->parent(at);
  if (parent >= 0 && has_left(parent)) return;
  if (parent < 0 && has_ended_) return;
  if (parent >= 0) return must(ranks_[static_cast<std::size_t>(parent)].relay->on_message(at, std::move(message)));
  for (const RelayedMessage::Item& item : message.items) n_groups_of_all_ += item.ranks.empty() ? 1 : 0;
  must(coordinator_.on_relayed(message, kAlways));
  has_news_ = true;
  if (options_.takes_eagerly) take(true);
}

void SimulatedWorld::pass_log(Rank& relay) {
  const std::size_t entry = relay.n_passed_down++;
  if (has_come_down(relay, entry)) relay.relay->pass_down({{log_[entry]}});
  apply(relay);
}

void SimulatedWorld::take(bool wire_is_idle) {
  if (has_ended_) {
    has_news_ = false;
    return;
  }
  LogMessage written{coordinator_.take_entries(wire_is_idle)};
  if (wire_is_idle) has_news_ = false;
  if (written.entries.empty()) return;
  judge_standstill(written);
  Message carried = carry(written);
  for (LogEntry& entry : std::get<LogMessage>(carried).entries) append(std::move(entry));
}

void SimulatedWorld::end() {
  coordinator_.fail_all(Status::aborted("the lane is taken down"));
  take(true);
  append(EndEntry{});
  has_ended_ = true;
}

void SimulatedWorld::append(LogEntry entry) {
  std::uint64_t names = 0;
  if (const auto* failure = std::get_if<FailEntry>(&entry)) names = bit_of(failure->name);
  if (const auto* execute = std::get_if<ExecuteEntry>(&entry)) {
    for (const ExecuteItem& item : execute->items) {
      const std::uint64_t name = item.is_defined_here ? bit_of(item.name) : name_of_id_[item.cache_id];
      if (item.cache_id != kNoCacheId) name_of_id_[item.cache_id] = name;
      names |= name;
    }
  }
  if (std::holds_alternative<EndEntry>(entry) || std::holds_alternative<ForgetEntry>(entry)) names = kAllNames;
  if (const auto* cancel = std::get_if<CancelEntry>(&entry)) names = name_of_id_[cancel->cache_id];
  if (const auto* plan = std::get_if<PlanEntry>(&entry)) {
    names = kAllNames;  // every rank may have to let go of what it holds
    names_in_group_.assign(plan->groups.size(), 0);
    for (std::size_t group = 0; group < plan->groups.size(); ++group) {
      for (const std::uint32_t cache_id : plan->groups[group]) names_in_group_[group] |= name_of_id_[cache_id];
    }
  }
  if (const auto* groups = std::get_if<ExecuteGroupsEntry>(&entry)) {
    ++n_group_entries_;
    for (const std::uint32_t group : groups->groups) names |= names_in_group_[group];
  }
  names_in_entry_.push_back(names);
  log_.push_back(std::move(entry));
}

void SimulatedWorld::apply(Rank& rank) {
  const std::size_t entry = rank.n_applied++;
  if (!has_come_down(rank, entry)) return;
  if (std::holds_alternative<FailEntry>(log_[entry])) look_at_rounds(rank, true);
  auto action = rank.participant.apply(log_[entry]);
  if (!action.ok()) return must(action.status());
  report_late(rank);
  if (const auto* execute = std::get_if<Participant::Execute>(&action.value())) {
    for (const auto& round : execute->to_close) word(round).close(round.number);
    const Signature* first = nullptr;
    for (const auto& ready : execute->requests) {
      const bool helps = ready.ticket == kNoTicket;
      const Signature& own = helps ? ready.absence->signature : rank.uses[ready.ticket].signature;
      if (first == nullptr) first = &own;
      if (first != &own && !can_travel_together(*first, own)) wrong_ = "an entry has what cannot be carried out as one";
      if (ready.ticket == kNoTicket) {
        rank.executed.push_back("help with " + ready.absence->name);
        continue;
      }
      rank.by_messages.forget(ready.ticket);
      const Use& use = rank.uses[ready.ticket];
      rank.executed.push_back(use.name + "#" + std::to_string(use.nth));
      settle(rank, ready.ticket, {true, entry, {}, ready.first_dims ? *ready.first_dims : FirstDims{}});
    }
  } else if (const auto* joined = std::get_if<Participant::Joined>(&action.value())) {
    rank.joined_last.push_back(joined->last);
    rank.n_uses.clear();
    rank.is_waiting = false;
  } else if (auto* planned = std::get_if<Participant::Planned>(&action.value())) {
    if (!planned->released.items.empty()) send(rank, std::move(planned->released));
    send(rank, std::move(planned->known));
  } else if (const auto* cancelled = std::get_if<Participant::Cancelled>(&action.value())) {
    if (cancelled->answer) report(rank, *cancelled->answer);
  } else if (const auto* forgotten = std::get_if<Participant::Forgotten>(&action.value())) {
    for (const auto& round : forgotten->to_close) word(round).close(round.number);
    send(rank, forgotten->answer);
  } else if (std::holds_alternative<EndEntry>(action.value())) {
    end(rank, entry);
  } else {
    const auto& failure = std::get<Participant::Fail>(action.value());
    for (const auto& round : failure.to_close) word(round).close(round.number);
    for (const auto ticket : failure.tickets) {
      rank.by_messages.forget(ticket);
      settle(rank, ticket, {false, entry, failure.status, {}});
    }
  }
  give_up_lost_rounds(rank);
  if (rank.is_waiting && !rank.participant.calls().any()) rank.is_waiting = false;
}

// All that is open there fails.
void SimulatedWorld::end(Rank& rank, std::size_t entry) {
  look_at_rounds(rank, true);
  rank.has_ended = true;
  rank.is_waiting = false;
  for (Use& use : rank.uses) {
    if (!use.outcome) use.outcome = Outcome{false, entry, Status::aborted("the lane is taken down"), {}};
  }
}

void SimulatedWorld::settle(Rank& rank, Ticket ticket, Outcome outcome) {
  Use& use = rank.uses.at(ticket);
  if (use.outcome) wrong_ = "'" + use.name + "' was answered twice on one rank";
  use.outcome = std::move(outcome);
}

Message SimulatedWorld::carry(const Message& message) {
  if (!options_.uses_codec) return message;
  std::vector<std::byte> frame;
  append_frame(0, message, frame);
  auto decoded = decode_body(std::span<const std::byte>(frame).subspan(kFrameHeaderBytes));
  must(decoded.status());
  return decoded.ok() ? std::move(decoded).value().message : message;
}

void SimulatedWorld::must(const Status& status) {
  if (!status.ok() && broken_.empty()) broken_ = status.message();
}

}  // namespace ciranda::testing
