#include "transport/loopback_fabric.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/fence.hpp"
#include "base/spanning_tree.hpp"
#include "transport/ring_channel.hpp"

namespace ciranda {
namespace {

struct alignas(SharedArena::kAlignment) Page {
  std::array<std::byte, SharedArena::kAlignment> bytes{};
};

std::vector<Page> zeroed_pages(std::size_t n_bytes) {
  return std::vector<Page>((n_bytes + sizeof(Page) - 1) / sizeof(Page));
}

std::span<std::byte> bytes_of(std::vector<Page>& pages) {
  return {reinterpret_cast<std::byte*>(pages.data()), pages.size() * sizeof(Page)};
}

// Where one rank sleeps.
struct alignas(128) Bed {
  std::atomic<std::uint32_t> doorbell{0};
  std::mutex mutex;
  std::condition_variable wake;
  bool woken = false;

  void ring() {
    {
      const std::lock_guard lock(mutex);
      woken = true;
    }
    wake.notify_one();
  }
};

constexpr std::size_t kChannelsPerPair = 2;  // control, data

}  // namespace

struct LoopbackFabric::State {
  State(int n_ranks, LoopbackOptions wanted)
      : options(std::move(wanted)), n(n_ranks), beds(static_cast<std::size_t>(n_ranks)) {
    options.hosts.resize(static_cast<std::size_t>(n), "localhost");
    options.costs.resize(static_cast<std::size_t>(n));
    bool one_host = true;
    for (const std::string& host : options.hosts) one_host = one_host && host == options.hosts[0];
    if (options.with_arena && one_host) arena_memory = zeroed_pages(SharedArena::required_bytes(n, options.slot_bytes));
    const SpanningTree tree(options.hosts, true);
    for (int rank = 0; rank < n; ++rank) {
      for (int other = 0; other < n; ++other) {
        const bool is_one_host =
            options.hosts[static_cast<std::size_t>(rank)] == options.hosts[static_cast<std::size_t>(other)];
        links.push_back(options.with_all_pairs || is_one_host || tree.are_linked(rank, other) ? Link::kFromTheStart
                                                                                              : Link::kNone);
      }
    }
    const auto n_rings = static_cast<std::size_t>(n * n) * kChannelsPerPair;
    ring_memory = zeroed_pages(n_rings * ByteRing::required_bytes(options.ring_bytes));
  }

  ByteRing ring(int from, int to, std::size_t channel) {
    const std::size_t n_bytes = ByteRing::required_bytes(options.ring_bytes);
    const auto index = static_cast<std::size_t>(from * n + to) * kChannelsPerPair + channel;
    return ByteRing(bytes_of(ring_memory).subspan(index * n_bytes, n_bytes));
  }

  enum class Link : std::uint8_t { kNone, kBegun, kLate, kFromTheStart };
  Link& link(int rank, int other) {
    return links[static_cast<std::size_t>(std::min(rank, other) * n + std::max(rank, other))];
  }
  void connect(int rank, int other) {
    {
      const std::lock_guard lock(dead_mutex);
      if (link(rank, other) != Link::kNone) return;
      link(rank, other) = are_held ? Link::kBegun : Link::kLate;
    }
    tell_of_links();
  }
  void hold(bool are) {
    {
      const std::lock_guard lock(dead_mutex);
      are_held = are;
      for (Link& each : links) {
        if (!are && each == Link::kBegun) each = Link::kLate;
      }
    }
    tell_of_links();
  }
  void tell_of_links() {
    n_changes.fetch_add(1, std::memory_order_release);
    for (Bed& each : beds) each.ring();
  }

  Bed& bed(int rank) { return beds[static_cast<std::size_t>(rank)]; }

  void kill(int rank) {
    {
      const std::lock_guard lock(dead_mutex);
      for (const int other : dead) {
        if (other == rank) return;
      }
      for (int peer = 0; peer < n; ++peer) {
        for (std::size_t channel = 0; channel < kChannelsPerPair; ++channel) {
          ring(rank, peer, channel).close();
          ring(peer, rank, channel).close();
        }
      }
      dead.push_back(rank);
      n_dead.store(dead.size(), std::memory_order_release);
    }
    for (Bed& each : beds) each.ring();
  }

  LoopbackOptions options;
  int n;
  std::vector<Page> arena_memory;
  std::vector<Page> ring_memory;
  std::vector<Bed> beds;
  std::mutex dead_mutex;
  std::vector<int> dead;    // guarded by dead_mutex, as the next two
  std::vector<Link> links;  // by both ranks
  bool are_held = false;
  std::atomic<std::uint32_t> n_changes{0};  // of links
  std::atomic<std::size_t> n_dead{0};
};

namespace {

class LoopbackMesh final : public Mesh {
 public:
  LoopbackMesh(std::shared_ptr<LoopbackFabric::State> state, int rank) : state_(std::move(state)), rank_(rank) {
    const std::string& my_host = state_->options.hosts[static_cast<std::size_t>(rank)];
    for (int peer = 0; peer < state_->n; ++peer) {
      const std::string& host = state_->options.hosts[static_cast<std::size_t>(peer)];
      const bool shares_memory = peer == rank || (state_->options.with_arena && host == my_host);
      const auto& costs = state_->options.costs[static_cast<std::size_t>(peer)];
      peers_.push_back({peer, static_cast<int>(getpid()), host, "", shares_memory, 0, costs});
      for (std::size_t channel = 0; channel < kChannelsPerPair; ++channel) {
        channels_.emplace_back(state_->ring(rank, peer, channel), state_->ring(peer, rank, channel));
      }
    }
    for (int peer = 0; peer < state_->n; ++peer) {
      connected_.push_back(state_->link(rank, peer) == State::Link::kFromTheStart);
    }
    if (!state_->arena_memory.empty()) {
      arena_.emplace(bytes_of(state_->arena_memory), state_->n, rank, state_->options.slot_bytes);
    }
  }
  ~LoopbackMesh() override { state_->kill(rank_); }
  LoopbackMesh(const LoopbackMesh&) = delete;
  LoopbackMesh& operator=(const LoopbackMesh&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return state_->n; }
  const PeerInfo& peer(int rank) const override { return peers_[static_cast<std::size_t>(rank)]; }
  Channel& control(int peer) override { return channels_[static_cast<std::size_t>(peer) * kChannelsPerPair]; }
  Channel& data(int peer) override { return channels_[static_cast<std::size_t>(peer) * kChannelsPerPair + 1]; }
  Traffic traffic(int peer) const override {
    const std::size_t first = static_cast<std::size_t>(peer) * kChannelsPerPair;
    Traffic sum = channels_[first].traffic();
    return sum += channels_[first + 1].traffic();
  }
  SharedArena* arena() override { return arena_ ? &*arena_ : nullptr; }

  bool is_connected(int peer) const override { return connected_[static_cast<std::size_t>(peer)]; }
  void connect(int peer) override {
    if (peer < rank_) state_->connect(rank_, peer);
  }
  const std::vector<int>& late_peers() const override { return late_; }
  void forget(int peer) override {
    if (!is_connected(peer)) add_closed(peer);
  }

  void poll_events() override {
    take_links();
    if (state_->n_dead.load(std::memory_order_acquire) == n_dead_seen_) return;
    const std::lock_guard lock(state_->dead_mutex);
    for (; n_dead_seen_ < state_->dead.size(); ++n_dead_seen_) {
      const int dead = state_->dead[n_dead_seen_];
      if (dead != rank_) {
        if (is_connected(dead)) add_closed(dead);
        continue;
      }
      for (int peer = 0; peer < state_->n; ++peer) {
        if (peer != rank_) add_closed(peer);
      }
    }
  }

  void notify(Urgency urgency) override {
    full_fence();
    for (int peer = 0; peer < state_->n; ++peer) {
      Bed& bed = state_->bed(peer);
      if (peer != rank_ && wants(urgency, bed.doorbell.load(std::memory_order_relaxed)) &&
          bed.doorbell.exchange(0) != 0) {
        bed.ring();
      }
    }
  }

  void arm(Sleeper sleeper) override {
    state_->bed(rank_).doorbell.store(static_cast<std::uint32_t>(sleeper), std::memory_order_relaxed);
    full_fence();
  }
  void disarm() override { state_->bed(rank_).doorbell.store(0, std::memory_order_relaxed); }

  void sleep(std::optional<std::chrono::nanoseconds> at_most) override {
    Bed& bed = state_->bed(rank_);
    std::unique_lock lock(bed.mutex);
    const auto woken = [&bed] { return bed.woken; };
    if (at_most) {
      bed.wake.wait_for(lock, *at_most, woken);
    } else {
      bed.wake.wait(lock, woken);
    }
    bed.woken = false;
  }
  void kick() override { state_->bed(rank_).ring(); }

  const std::vector<int>& closed_peers() const override { return closed_; }

 private:
  using State = LoopbackFabric::State;

  void take_links() {
    const std::uint32_t n_changes = state_->n_changes.load(std::memory_order_acquire);
    if (n_changes == n_changes_seen_) return;
    n_changes_seen_ = n_changes;
    const std::lock_guard lock(state_->dead_mutex);
    for (int peer = 0; peer < state_->n; ++peer) {
      const bool is_closed = std::find(closed_.begin(), closed_.end(), peer) != closed_.end();
      if (is_closed || is_connected(peer) || state_->link(rank_, peer) != State::Link::kLate) continue;
      connected_[static_cast<std::size_t>(peer)] = true;
      late_.push_back(peer);
      for (const int dead : state_->dead) {
        if (dead == peer) add_closed(peer);
      }
    }
  }

  void add_closed(int peer) {
    for (const int known : closed_) {
      if (known == peer) return;
    }
    closed_.push_back(peer);
  }

  std::shared_ptr<LoopbackFabric::State> state_;
  int rank_;
  std::vector<PeerInfo> peers_;
  std::vector<RingChannel> channels_;  // control and data of each rank in turn
  std::optional<SharedArena> arena_;
  std::vector<bool> connected_;  // by rank
  std::vector<int> late_;
  std::uint32_t n_changes_seen_ = 0;
  std::size_t n_dead_seen_ = 0;
  std::vector<int> closed_;
};

}  // namespace

LoopbackFabric::LoopbackFabric(int n_ranks, LoopbackOptions options)
    : state_(std::make_shared<State>(n_ranks, std::move(options))) {}
LoopbackFabric::~LoopbackFabric() = default;

std::unique_ptr<Mesh> LoopbackFabric::take_mesh(int rank) { return std::make_unique<LoopbackMesh>(state_, rank); }
void LoopbackFabric::kill(int rank) { state_->kill(rank); }
void LoopbackFabric::hold_connections() { state_->hold(true); }
void LoopbackFabric::let_connect() { state_->hold(false); }

}  // namespace ciranda
