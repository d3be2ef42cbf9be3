#include "transport/socket_mesh.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "transport/event_loop.hpp"
#include "transport/fence.hpp"
#include "transport/ring_channel.hpp"
#include "transport/silence.hpp"
#include "transport/sleep_gate.hpp"
#include "transport/socket.hpp"
#include "transport/striped_channel.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

constexpr std::uint32_t kHangUp = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// Up to this number of peers by socket, reading all sockets is cheaper than asking epoll which are ready.
constexpr std::size_t kFewPeers = 2;

// The number of checks for silence within the link timeout.
constexpr int kLooksForSilence = 8;

// The source of an event; values above kData are further data sockets.
enum Source : std::uint64_t { kControl, kProcess, kData };
constexpr int kSourceBits = 8;
static_assert(kData + kMostSockets <= 1U << kSourceBits);

std::uint64_t token_of(int peer, std::uint64_t source) {
  return static_cast<std::uint64_t>(peer) << kSourceBits | source;
}

// A peer and how to reach it.
struct Link {
  Link(SocketMeshPeer peer, bool checks_data)
      : info(std::move(peer.info)), bell(std::move(peer.bell)), process(std::move(peer.process)) {
    if (peer.control.valid()) control_socket.emplace(std::move(peer.control));
    if (peer.data.size() == 1 && !checks_data) {
      data_socket.emplace(std::move(peer.data.front()));
    } else if (!peer.data.empty()) {
      std::vector<TcpChannel> sockets;
      for (UniqueFd& each : peer.data) sockets.emplace_back(std::move(each));
      striped.emplace(std::move(sockets), checks_data);
    }
  }

  bool has_rings() const { return control_ring.has_value(); }
  std::size_t n_data_sockets() const { return striped ? striped->n_sockets() : data_socket ? 1 : 0; }
  TcpChannel& data(std::size_t index) { return striped ? striped->socket(index) : *data_socket; }
  // True if some connection failed because the peer's host acknowledged nothing.
  bool fell_silent() {
    bool is_any = is_silent || (control_socket && control_socket->fell_silent());
    for (std::size_t i = 0; i < n_data_sockets(); ++i) is_any = is_any || data(i).fell_silent();
    return is_any;
  }

  PeerInfo info;
  std::optional<TcpChannel> control_socket;
  std::optional<TcpChannel> data_socket;
  std::optional<StripedChannel> striped;  // instead of data_socket, if there are several sockets or data is checked
  std::optional<RingChannel> control_ring;
  std::optional<RingChannel> data_ring;
  std::optional<Bell> bell;
  UniqueFd process;
  std::atomic<std::uint32_t>* doorbell = nullptr;  // set if memory is shared
  std::vector<Silence> silences;                   // of the control socket, then of the data sockets
  bool is_silent = false;                          // one of these sockets was silent for too long
  bool closed = false;
};

class SocketMesh final : public Mesh {
 public:
  SocketMesh(SocketMeshParts parts, EventLoop loop, std::unique_ptr<SleepGate> gate)
      : rank_(parts.rank),
        bell_(std::move(parts.bell)),
        shared_(std::move(parts.shared)),
        link_timeout_(parts.link_timeout),
        loop_(std::move(loop)),
        gate_(std::move(gate)) {
    links_.reserve(parts.peers.size());
    for (SocketMeshPeer& peer : parts.peers) {
      links_.push_back(std::make_unique<Link>(std::move(peer), parts.checks_data));
    }
    attach_memory();
  }
  ~SocketMesh() override;
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  Status watch();

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }
  const PeerInfo& peer(int rank) const override { return link(rank).info; }
  Channel& control(int peer) override {
    Link& to = link(peer);
    return to.has_rings() ? static_cast<Channel&>(*to.control_ring) : *to.control_socket;
  }
  Channel& data(int peer) override {
    Link& to = link(peer);
    if (to.striped) return *to.striped;
    return to.has_rings() ? static_cast<Channel&>(*to.data_ring) : *to.data_socket;
  }
  SharedArena* arena() override { return arena_ ? &*arena_ : nullptr; }

  void poll_events() override;
  void notify(Urgency urgency) override;
  void arm(Sleeper sleeper) override;
  void disarm() override;
  void sleep(std::optional<std::chrono::nanoseconds> at_most) override;
  void kick() override { bell_.ring(); }
  const std::vector<int>& closed_peers() const override { return closed_; }
  std::string why_closed(int peer) const override;

 private:
  Link& link(int rank) const { return *links_[static_cast<std::size_t>(rank)]; }
  void attach_memory();
  Status watch(Link& peer);
  void on_event(Link& peer, std::uint64_t source, std::uint32_t events);
  void close_peer(Link& peer);
  static void drop_wake_ups(Link& peer);
  void take_events();
  void look_for_silence();

  pid_t owner_ = getpid();
  int rank_;
  Bell bell_;
  std::optional<SharedMemory> shared_;
  Silence::Clock::duration link_timeout_;
  Silence::Clock::time_point looked_for_silence_ = Silence::Clock::now();
  EventLoop loop_;
  std::unique_ptr<SleepGate> gate_;  // of the bell and loop_
  std::vector<std::unique_ptr<Link>> links_;
  std::optional<SharedArena> arena_;
  std::atomic<std::uint32_t>* my_doorbell_ = nullptr;
  std::vector<Link*> sharing_;  // the links with rings
  std::vector<Link*> striped_;  // the links with a striped channel
  std::vector<int> closed_;
  std::uint32_t n_polls_ = 0;
  std::uint32_t poll_period_ = 1;
  bool only_rings_ = false;
  bool looks_at_sockets_ = false;  // reads all sockets in every poll, without epoll
  std::atomic<bool> woken_by_socket_{false};
  // Events were taken from epoll since arm(): the caller of arm() may have read the channels before them only.
  std::atomic<bool> took_events_{false};
};

void SocketMesh::attach_memory() {
  if (!shared_) return;
  const auto memory = shared_->segment.memory();
  const SegmentLayout& layout = shared_->layout;
  const std::vector<int>& members = shared_->members;
  const auto index_of = [&members](int rank) {
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  };
  const int me = index_of(rank_);
  const SharedArena arena = layout.arena(memory, me);
  bool all_share = true;
  for (const auto& each : links_) {
    if (each->info.rank == rank_) continue;
    all_share = all_share && each->info.shares_memory;
    if (each->info.shares_memory) {
      const int other = index_of(each->info.rank);
      each->control_ring.emplace(layout.control_ring(memory, me, other), layout.control_ring(memory, other, me));
      each->data_ring.emplace(layout.data_ring(memory, me, other), layout.data_ring(memory, other, me));
      each->doorbell = &arena.doorbell(other);
      sharing_.push_back(each.get());
    }
  }
  my_doorbell_ = &arena.doorbell(me);
  if (all_share && layout.slot_bytes() != 0) arena_ = arena;
}

Status SocketMesh::watch() {
  for (const auto& each : links_) {
    if (each->info.rank == rank_) continue;
    if (Status watched = watch(*each); !watched.ok()) return watched;
  }
  // Asking epoll is a system call. If all data comes through rings, or all sockets are read in any case, epoll only
  // reports a peer's end.
  const std::size_t n_by_socket = links_.size() - 1 - sharing_.size();
  only_rings_ = n_by_socket == 0;
  looks_at_sockets_ = !only_rings_ && n_by_socket <= kFewPeers;
  poll_period_ = only_rings_ || looks_at_sockets_ ? 64 : 4;
  // With rings only, socket events are rare: the gate stays open, which saves a system call at every sleep.
  if (only_rings_) gate_->open(true);
  return {};
}

Status SocketMesh::watch(Link& peer) {
  const auto link_timeout = std::chrono::ceil<std::chrono::milliseconds>(link_timeout_);
  tune_connection(peer.control_socket->fd(), link_timeout);
  Status watched = loop_.add(peer.control_socket->fd(), TcpChannel::kEvents, token_of(peer.info.rank, kControl));
  for (std::size_t i = 0; i < peer.n_data_sockets() && watched.ok(); ++i) {
    tune_connection(peer.data(i).fd(), link_timeout);
    watched = loop_.add(peer.data(i).fd(), TcpChannel::kEvents, token_of(peer.info.rank, kData + i));
  }
  peer.silences.resize(1 + peer.n_data_sockets());
  if (peer.striped) striped_.push_back(&peer);
  if (watched.ok() && peer.process.valid()) {
    watched = loop_.add(peer.process.get(), EPOLLIN | EPOLLET, token_of(peer.info.rank, kProcess));
  }
  return watched;
}

SocketMesh::~SocketMesh() {
  if (getpid() != owner_) return;
  for (Link* peer : sharing_) {
    peer->control_ring->close();
    peer->data_ring->close();
  }
  // The sockets close gracefully, control before data, so that a peer reads the last control bytes before it sees the
  // end.
  for (const auto& each : links_) each->control_socket.reset();
}

void SocketMesh::poll_events() {
  if (looks_at_sockets_) {
    for (const auto& each : links_) {
      if (each->n_data_sockets() == 0) continue;
      each->control_socket->look_again();
      for (std::size_t i = 0; i < each->n_data_sockets(); ++i) each->data(i).look_again();
    }
  }
  if (++n_polls_ >= poll_period_ || woken_by_socket_.load(std::memory_order_relaxed)) take_events();
  for (Link* each : striped_) {
    each->striped->flush();
    if (each->striped->is_damaged()) close_peer(*each);
  }
}

std::string SocketMesh::why_closed(int peer) const {
  Link& from = link(peer);
  if (from.fell_silent()) {
    const auto seconds = std::chrono::duration<double>(link_timeout_).count();
    return " is gone: its host has acknowledged nothing for " + std::to_string(std::lround(seconds)) +
           " seconds (CIRANDA_LINK_TIMEOUT), so the host is down, or a link to it is cut.";
  }
  if (!from.striped || !from.striped->is_damaged()) return {};
  return " sent data that was changed on its way here: a checksum differs. Memory, a network card or what lies between "
         "the two is faulty.";
}

void SocketMesh::take_events() {
  n_polls_ = 0;
  woken_by_socket_.store(false, std::memory_order_relaxed);
  for (const EventLoop::Event& event : loop_.wait(0)) {
    took_events_.store(true, std::memory_order_relaxed);
    on_event(link(static_cast<int>(event.token >> kSourceBits)), event.token & ((1U << kSourceBits) - 1), event.events);
  }
  if (!only_rings_) look_for_silence();
}

void SocketMesh::look_for_silence() {
  const auto now = Silence::Clock::now();
  if (now - looked_for_silence_ < link_timeout_ / kLooksForSilence) return;
  looked_for_silence_ = now;
  for (const auto& each : links_) {
    for (std::size_t i = 0; i < each->silences.size() && !each->closed; ++i) {
      const TcpChannel& socket = i == 0 ? *each->control_socket : each->data(i - 1);
      if (each->silences[i].lasts(Silence::sight_of(socket.fd()), now) < link_timeout_) continue;
      each->is_silent = true;
      close_peer(*each);
    }
  }
}

void SocketMesh::on_event(Link& peer, std::uint64_t source, std::uint32_t events) {
  switch (source) {
    case kProcess: close_peer(peer); return;
    case kControl:
      if (peer.has_rings()) {
        drop_wake_ups(peer);
      } else {
        peer.control_socket->on_events(events);
      }
      if ((events & kHangUp) != 0) close_peer(peer);
      return;
    default:
      peer.data(source - kData).on_events(events);
      // An orderly end of the data connection comes with that of the control connection, whose last bytes may still be
      // in flight. Any other end means that the peer is gone.
      if ((events & (EPOLLHUP | EPOLLERR)) != 0) close_peer(peer);
      return;
  }
}

void SocketMesh::close_peer(Link& peer) {
  if (std::exchange(peer.closed, true)) return;
  if (peer.has_rings()) {
    peer.control_ring->close();
    peer.data_ring->close();
  } else {
    peer.control_socket->mark_closed();
    for (std::size_t i = 0; i < peer.n_data_sockets(); ++i) peer.data(i).mark_closed();
  }
  closed_.push_back(peer.info.rank);
}

void SocketMesh::drop_wake_ups(Link& peer) {
  std::array<std::byte, 64> dropped;
  const int fd = peer.control_socket->fd();
  while (recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT) == static_cast<ssize_t>(dropped.size())) {
  }
}

void SocketMesh::notify(Urgency urgency) {
  if (sharing_.empty()) return;
  full_fence();
  for (Link* peer : sharing_) {
    if (!wants(urgency, peer->doorbell->load(std::memory_order_relaxed)) || peer->doorbell->exchange(0) == 0) continue;
    if (peer->bell) {
      peer->bell->ring();
    } else {
      const std::byte byte{1};
      (void)send(peer->control_socket->fd(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
}

// A thread that runs the progress loop reads the sockets itself. A sleeper that woke at each arrival would only take
// that thread's core.
void SocketMesh::arm(Sleeper sleeper) {
  const bool at_once = sleeper != Sleeper::kResting || !gate_->lingers();
  if (looks_at_sockets_ && at_once) take_events();  // events of bytes already read would wake the sleeper needlessly
  took_events_.store(false, std::memory_order_relaxed);
  if (my_doorbell_ != nullptr) {
    my_doorbell_->store(static_cast<std::uint32_t>(sleeper), std::memory_order_relaxed);
    full_fence();
  }
  if (!only_rings_) gate_->open(at_once);
}

void SocketMesh::disarm() {
  if (!only_rings_) gate_->shut();
  if (my_doorbell_ != nullptr) my_doorbell_->store(0, std::memory_order_relaxed);
}

// Waits at the gate. Leaves the socket events for the holder of the progress lock.
void SocketMesh::sleep(std::optional<std::chrono::nanoseconds> at_most) {
  if (took_events_.exchange(false, std::memory_order_relaxed)) return;
  if (!only_rings_)
    at_most = std::min<std::chrono::nanoseconds>(at_most.value_or(link_timeout_), link_timeout_ / kLooksForSilence);
  const bool has_news = gate_->sleep(at_most);
  if (has_news) bell_.drain();
  if (has_news || !only_rings_) woken_by_socket_.store(true, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<Mesh>> make_socket_mesh(SocketMeshParts parts) {
  auto loop = EventLoop::create();
  if (!loop.ok()) return loop.status();
  auto gate = SleepGate::create(parts.bell.fd(), loop.value().fd());
  if (!gate.ok()) return gate.status();
  auto mesh = std::make_unique<SocketMesh>(std::move(parts), std::move(loop).value(), std::move(gate).value());
  if (Status watched = mesh->watch(); !watched.ok()) return watched;
  return std::unique_ptr<Mesh>(std::move(mesh));
}

}  // namespace ciranda
