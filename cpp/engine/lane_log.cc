#include "engine/lane_log.hpp"

#include <string>
#include <utility>

#include "agree/process_sets.hpp"
#include "base/agreement_limits.hpp"
#include "base/earliest.hpp"
#include "observe/ticks.hpp"
#include "transport/arrivals.hpp"

namespace ciranda {
namespace {

// Longer than the ranks of a host are apart while they do the same work.
constexpr std::chrono::milliseconds kRelayWindow{50};
// The most groups of a planned step with relays: few, but enough that agreement and data transfers overlap.
constexpr std::size_t kMostGroups = 32;

std::vector<std::string> hosts_of(const LaneMesh& mesh) {
  std::vector<std::string> hosts;
  hosts.reserve(static_cast<std::size_t>(mesh.size()));
  for (int member = 0; member < mesh.size(); ++member) hosts.push_back(mesh.peer(member).host);
  return hosts;
}

// A set that can be removed has no rounds by messages: its coordinator must be able to end it at any time.
Direct direct_rounds(LaneId id, const LaneMesh& mesh, const Config& config, bool has_relays) {
  if (!config.direct_rounds || !config.algorithm.empty() || has_relays || mesh.size() == 1) return Direct::kNot;
  if (shares_memory_with_all(mesh)) return mesh.size() <= Arrivals::kMaxMembers ? Direct::kInMemory : Direct::kNot;
  const bool has_few = mesh.size() <= agreement_limits(config).message_ranks;
  return has_few && set_of(id) == kWorldSet ? Direct::kByMessages : Direct::kNot;
}

// None if the lane has no relays. All members of a lane come to the same answer.
std::optional<RelayTree> relay_tree(LaneId id, const LaneMesh& mesh, const Config& config) {
  // Ranks form a set, and leave it, one by one: a relay that is not there yet would seem to be missing with all below.
  if (!config.relays || needs_no_agreement(id)) return std::nullopt;
  return relays_between(hosts_of(mesh), id == 0 ? 0 : agreement_limits(config).message_ranks);
}

CoordinatorOptions coordinator_options(LaneId id, const LaneMesh& mesh, const Config& config, bool has_relays) {
  CoordinatorOptions options;
  options.size = mesh.size();
  options.ranks = mesh.ranks();
  options.hosts = hosts_of(mesh);
  options.fusion_threshold_bytes = static_cast<std::size_t>(config.fusion_threshold_bytes);
  options.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  options.learned_order = config.learned_order;
  options.reports_groups = true;
  if (has_relays) options.most_groups = kMostGroups;
  options.direct = direct_rounds(id, mesh, config, has_relays);
  options.limits = agreement_limits(config);
  options.shares_memory = shares_memory_with_all(mesh);
  options.goes_by_nccl = !is_pair(set_of(id)) && config.gpu_way == "nccl";
  options.adds_by_nccl = config.gpu_reduce == "nccl";
  options.check_interval = static_cast<std::uint64_t>(config.check_consistency);
  options.stall = stall_limits(config);
  options.fails_other_orders = config.fail_other_orders;
  return options;
}

}  // namespace

StallLimits stall_limits(const Config& config) {
  const auto seconds = [](double value) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
  };
  return {seconds(config.stall_warning_seconds), seconds(config.stall_shutdown_seconds)};
}

LaneLog::LaneLog(LaneId id, const LaneMesh& mesh, ControlPlane& control, const Config& config, const Logger& logger,
                 Observers observers)
    : id_(id), mesh_(mesh), control_(control), logger_(logger), observers_(observers), gathering_(kRelayWindow) {
  const std::optional<RelayTree> tree = relay_tree(id, mesh, config);
  has_relays_ = tree.has_value();
  take_place(tree ? *tree : RelayTree(std::vector<std::string>(static_cast<std::size_t>(mesh.size()))));
  if (mesh.rank() != 0) return;
  coordinator_ = std::make_unique<Coordinator>(coordinator_options(id, mesh, config, has_relays_));
}

// Without relays, all members count as one host, whose first member is the coordinator.
void LaneLog::take_place(const RelayTree& tree) {
  const int self = mesh_.rank();
  reports_to_ = tree.relay_of(self);
  for (int relay = reports_to_; relay >= 0; relay = tree.parent(relay)) {
    if (relay != self) above_.push_back(relay);
  }
  if (!tree.is_relay(self)) return;
  below_.assign(tree.ranks(self).begin() + 1, tree.ranks(self).end());
  for (const int relay : tree.relays_below(self)) below_.push_back(relay);
  if (has_relays_) relay_.emplace(tree, self);
}

// --- up

void LaneLog::post(int member, const Message& message) {
  control_.post(mesh_.ranks()[static_cast<std::size_t>(member)], id_, message);
}

void LaneLog::report(const Message& message, TimePoint now) {
  if (reports_to_ != mesh_.rank()) return post(reports_to_, message);
  // Passed on without a frame. An error would be a bug of the engine, and would look like a lost answer.
  if (Status status = take_in(reports_to_, message, now); !status.ok()) logger_.error(status.message());
}

bool LaneLog::expects(int from, const Message& message) const {
  if (std::holds_alternative<LogMessage>(message)) return !above_.empty() && from == above_.front();
  if (std::holds_alternative<LeaveMessage>(message)) return coordinator_ && is_formed(set_of(id_));
  return relay_ || coordinator_;
}

Result<LogMessage> LaneLog::on_message(int from, Message message, TimePoint now) {
  if (auto* log = std::get_if<LogMessage>(&message)) {
    pass_down(*log);
    return std::move(*log);
  }
  if (Status status = take_in(from, std::move(message), now); !status.ok()) return status;
  return LogMessage{};
}

Status LaneLog::take_in(int from, Message message, TimePoint now) {
  if (relay_) return relay_->on_message(from, std::move(message));
  if (is_ending()) return Status::ok_status();
  if (std::holds_alternative<LeaveMessage>(message)) {
    leaver_ = mesh_.peer(from).rank;
    end(has_left(leaver_));
    return Status::ok_status();
  }
  coordinator_->keep_arrivals(observers_.recorder.wants_arrivals());
  const Status status = coordinator_->on_message(from, std::move(message), now);
  record_arrivals();
  return status;
}

Result<bool> LaneLog::pass_on(TimePoint now) {
  if (!relay_) return false;
  if (gathering_.is_over(now)) relay_->let_go();
  const bool has_news = relay_->has_news();
  gathering_.update(relay_->holds_any(), has_news, now);
  if (!has_news) return false;
  const RelayedMessage news = relay_->take();
  if (is_ending()) return false;
  control_.hurry();
  if (!coordinator_) {
    post(above_.front(), news);
    return true;
  }
  coordinator_->keep_arrivals(observers_.recorder.wants_arrivals());
  if (Status status = coordinator_->on_relayed(news, now); !status.ok()) return status;
  record_arrivals();
  return true;
}

// --- down

void LaneLog::pass_down(const LogMessage& log) {
  if (relay_) relay_->pass_down(log);
  if (below_.empty()) return;
  control_.hurry();
  for (const int member : below_) post(member, log);
}

LogMessage LaneLog::write(bool wire_is_idle, std::size_t n_bytes_under_way, TimePoint now) {
  if (!coordinator_ || has_ended_) return {};
  if (const auto due = coordinator_->next_stall_check(); due && now >= *due) {
    for (const auto& report : coordinator_->check_stalls(now)) {
      observers_.counters.count_stall();
      logger_.warning(report.text);
    }
  }
  if (coordinator_->has_held_up()) count_held_up();
  if (last_word_) coordinator_->fail_all(*last_word_);
  LogMessage log{coordinator_->take_entries(wire_is_idle, n_bytes_under_way)};
  if (last_word_) log.entries.emplace_back(EndEntry{leaver_});
  has_ended_ = last_word_.has_value();
  if (!log.entries.empty()) pass_down(log);
  return log;
}

void LaneLog::count_held_up() {
  for (const HeldUp& wait : coordinator_->take_held_up()) {
    observers_.counters.held_up_by(mesh_.peer(wait.last).rank, wait.from, wait.until);
  }
}

void LaneLog::record_arrivals() {
  if (!coordinator_->has_arrivals()) return;
  const std::uint64_t now = ticks();
  for (const ArrivedCall& call : coordinator_->take_arrivals()) {
    observers_.recorder.write_arrival(call.name, call.collective, mesh_.peer(call.member).rank, now);
  }
}

void LaneLog::end(const Status& why) {
  if (!last_word_) last_word_ = why;
}

std::optional<TimePoint> LaneLog::due() const {
  return earliest(gathering_.due(), coordinator_ ? coordinator_->next_stall_check() : std::nullopt);
}

}  // namespace ciranda
