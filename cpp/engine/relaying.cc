#include "engine/relaying.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ciranda {
namespace {

// Longer than what ranks of a host differ by while they do the same work.
constexpr std::chrono::milliseconds kRelayPatience{50};
constexpr int kMostPatience = 20;

}  // namespace

void Holding::update(bool holds_any, bool has_progress, TimePoint now) {
  if (!holds_any) {
    due_.reset();
    return;
  }
  if (!due_) began_ = now;
  if (!due_ || has_progress) due_ = std::min(now + patience_, began_ + kMostPatience * patience_);
}

std::unique_ptr<Relaying> Relaying::make(const LaneMesh& mesh) {
  std::vector<std::string> hosts;
  hosts.reserve(static_cast<std::size_t>(mesh.size()));
  for (int member = 0; member < mesh.size(); ++member) hosts.push_back(mesh.peer(member).host);
  const RelayTree tree(hosts);
  if (tree.n_hosts() < 2 || tree.n_hosts() == mesh.size()) return nullptr;
  return std::unique_ptr<Relaying>(new Relaying(tree, mesh.rank()));
}

Relaying::Relaying(const RelayTree& tree, int member)
    : announces_to_(tree.relay_of(member)), gets_log_from_(announces_to_), holding_(kRelayPatience) {
  if (!tree.is_relay(member)) return;
  gets_log_from_ = tree.parent(member);
  below_.assign(tree.ranks(member).begin() + 1, tree.ranks(member).end());
  for (const int relay : tree.relays_below(member)) below_.push_back(relay);
  relay_.emplace(tree, member);
}

std::optional<RelayedMessage> Relaying::take(TimePoint now) {
  if (holding_.is_over(now)) relay_->let_go();
  const bool has_news = relay_->has_news();
  holding_.update(relay_->holds_any(), has_news, now);
  if (!has_news) return std::nullopt;
  return relay_->take();
}

}  // namespace ciranda
