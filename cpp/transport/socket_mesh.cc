#include "transport/socket_mesh.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "base/fence.hpp"
#include "transport/delivery.hpp"
#include "transport/event_loop.hpp"
#include "transport/process.hpp"
#include "transport/record_channel.hpp"
#include "transport/ring_channel.hpp"
#include "transport/silence.hpp"
#include "transport/sleep_gate.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

constexpr std::uint32_t kHangUp = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

// Up to this number of peers by socket, reading all sockets is cheaper than asking epoll which are ready.
constexpr std::size_t kFewPeers = 2;

// The source of an event; values above kData are further data sockets.
enum Source : std::uint64_t { kControl, kProcess, kData };
constexpr int kSourceBits = 8;
static_assert(kData + kMostSockets <= 1U << kSourceBits);

std::uint64_t token_of(int peer, std::uint64_t source) {
  return static_cast<std::uint64_t>(peer) << kSourceBits | source;
}

// A channel to a peer that is reached by sockets. Without connections it asks for them, and takes no bytes.
class LateChannel final : public Channel {
 public:
  LateChannel(std::optional<RecordChannel>& records, const bool& is_closed, std::function<void()> ask)
      : records_(records), is_closed_(is_closed), ask_(std::move(ask)) {}
  std::size_t write_some(std::span<const std::byte> bytes) override {
    return is_connected() ? records_->write_some(bytes) : 0;
  }
  std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) override {
    return is_connected() ? records_->write_some(first, second) : 0;
  }
  std::size_t read_some(std::span<std::byte> bytes) override { return is_connected() ? records_->read_some(bytes) : 0; }
  ChannelState state() const override {
    if (records_) return records_->state();
    return is_closed_ ? ChannelState::kClosed : ChannelState::kOpen;
  }
  bool has_unsent() const override { return records_ && records_->has_unsent(); }

 private:
  bool is_connected() {
    if (records_) return true;
    ask_();
    return false;
  }

  std::optional<RecordChannel>& records_;
  const bool& is_closed_;
  std::function<void()> ask_;
};

// What a beat says of the control connection and each of those for data that its sender has: how many records have been
// received, and one for being connected. So what does not arrive is noticed.
using Count = std::uint64_t;
constexpr Count kSomeUnread = ~Count{0};  // more may have arrived than were received
constexpr std::size_t kMostCounts = 1 + kMostSockets;
static_assert(kMostCounts * sizeof(Count) <= RecordChannel::kMostNoteBytes);

// A peer and how to reach it: by rings, perhaps with a control connection for wake-ups, or by records.
struct Link {
  // ask_for_...: when that channel is used and not connected; on_note: of the control connection.
  Link(SocketMeshPeer peer, SealKind seals, const std::function<void()>& on_failure,
       std::function<void()> ask_for_control, std::function<void()> ask_for_data,
       const std::function<void(std::span<const std::byte>)>& on_note)
      : info(std::move(peer.info)),
        control_channel(control, closed, std::move(ask_for_control)),
        data_channel(data, closed, std::move(ask_for_data)),
        bell(peer.bell),
        process(std::move(peer.process)) {
    if (!peer.data.empty()) data.emplace(std::move(peer.data), seals, on_failure);
    if (!peer.control.fd.valid()) return;
    if (info.shares_memory) {
      wake_ups.emplace(std::move(peer.control.fd));
    } else {
      std::vector<KeyedSocket> sockets;
      sockets.push_back(std::move(peer.control));
      control.emplace(std::move(sockets), seals, on_failure, on_note);
    }
  }

  bool has_rings() const { return control_ring.has_value(); }
  // Null where there is none.
  TcpChannel* control_socket() {
    if (control) return &control->socket(0);
    return wake_ups ? &*wake_ups : nullptr;
  }
  std::size_t n_data_sockets() const { return data ? data->n_sockets() : 0; }
  // Of those counted: control, then data.
  std::optional<Count> n_sent(std::size_t index) const {
    const auto n_records = index == 0 ? control->n_sent(0) : data->n_sent(index - 1);
    return n_records ? std::optional(*n_records + 1) : std::nullopt;
  }
  std::optional<Count> n_received(std::size_t index) const {
    const auto n_records = index == 0 ? control->n_received(0) : data->n_received(index - 1);
    return n_records ? std::optional(*n_records + 1) : std::nullopt;
  }
  Traffic traffic() const {
    Traffic sum;
    if (control_ring) sum += control_ring->traffic();
    if (data_ring) sum += data_ring->traffic();
    for (const std::optional<RecordChannel>* channel : {&control, &data}) {
      for (std::size_t i = 0; *channel && i < (*channel)->n_sockets(); ++i)
        sum += traffic_of((*channel)->socket(i).fd());
    }
    return sum;
  }
  bool has_failed() const { return (control && control->failure()) || (data && data->failure()); }
  // Its last words may still be on their way, and be read.
  bool has_control() const { return control && control->state() == ChannelState::kOpen; }
  bool is_data_cut_off() const {
    return data && data->failure() && data->failure()->defect == RecordChannel::Defect::kCut;
  }
  // The peer is told why it is lost.
  bool is_told_why() const { return has_failed() || !why_not_connected.empty() || held_back.has_value(); }
  // True if some connection failed because the peer's host acknowledged nothing.
  bool fell_silent() {
    bool is_any = is_silent || (control_socket() != nullptr && control_socket()->fell_silent());
    for (std::size_t i = 0; i < n_data_sockets(); ++i) is_any = is_any || data->socket(i).fell_silent();
    return is_any;
  }

  PeerInfo info;
  std::optional<TcpChannel> wake_ups;
  std::optional<RecordChannel> control;
  std::optional<RecordChannel> data;
  bool closed = false;
  LateChannel control_channel;  // on `control`
  LateChannel data_channel;     // on `data`
  std::optional<RingChannel> control_ring;
  std::optional<RingChannel> data_ring;
  std::optional<BellPlace> bell;
  UniqueFd process;
  int member = 0;                                  // its index in the memory, if that is shared
  std::atomic<std::uint32_t>* doorbell = nullptr;  // set if memory is shared
  std::vector<Silence> silences;                   // of the control socket, then of the data sockets
  std::vector<bool> is_beside_control;             // of the data sockets: beats on the control socket take the same way
  bool is_silent = false;                          // one of the sockets was silent for too long
  std::optional<Silence::Clock::time_point> data_ended_at;  // a connection for data, out of order
  std::vector<Delivery> deliveries;                         // to the peer, as the silences
  std::optional<std::size_t> held_back;                     // which of them is, if one is
  bool is_control_asked_for = false;                        // if there was none at first
  bool is_data_asked_for = false;
  bool awaits_control_for_data = false;  // data is asked for as soon as there is a control connection
  std::string why_not_connected;         // empty if that has not failed
};

// Among up to so many members of a host, looking at each one's ring costs no more than to note who has written.
constexpr int kFewMembers = 16;

// A connection among control and those for data.
std::string name_of(std::size_t index) {
  return index == 0 ? "the control connection" : "data connection " + std::to_string(index - 1);
}

// How soon connections under way are looked at again.
constexpr std::chrono::milliseconds kBetweenLooks{20};

class SocketMesh final : public Mesh {
 public:
  SocketMesh(SocketMeshParts parts, EventLoop loop, std::unique_ptr<SleepGate> gate)
      : rank_(parts.rank),
        bell_(std::move(parts.bell)),
        shared_(std::move(parts.shared)),
        seals_(parts.seals),
        late_connections_(std::move(parts.late_connections)),
        link_timeout_(parts.link_timeout),
        loop_(std::move(loop)),
        gate_(std::move(gate)) {
    links_.reserve(parts.peers.size());
    for (SocketMeshPeer& peer : parts.peers) {
      const auto rank = static_cast<int>(links_.size());
      links_.push_back(std::make_unique<Link>(
          std::move(peer), seals_, [this] { on_failure(); }, [this, rank] { ask_for_control(link(rank)); },
          [this, rank] { ask_for_data(link(rank)); },
          [this, rank](std::span<const std::byte> note) { on_note(link(rank), note); }));
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
    return to.has_rings() ? static_cast<Channel&>(*to.control_ring) : to.control_channel;
  }
  Channel& data(int peer) override {
    Link& to = link(peer);
    return to.has_rings() ? static_cast<Channel&>(*to.data_ring) : to.data_channel;
  }
  bool is_connected(int peer) const override { return link(peer).has_rings() || link(peer).control.has_value(); }
  void connect(int peer) override { ask_for_control(link(peer)); }
  const std::vector<int>& late_peers() const override { return late_; }
  void forget(int peer) override;
  SharedArena* arena() override { return arena_ ? &*arena_ : nullptr; }
  const std::vector<int>* take_senders() override;

  void poll_events() override;
  void notify(Urgency urgency) override;
  void arm(Sleeper sleeper) override;
  void disarm() override;
  void sleep(std::optional<std::chrono::nanoseconds> at_most) override;
  void kick() override { bell_.ring(); }
  const std::vector<int>& closed_peers() const override { return closed_; }
  std::string why_closed(int peer) const override;
  Traffic traffic(int peer) const override { return link(peer).traffic(); }

 private:
  Link& link(int rank) const { return *links_[static_cast<std::size_t>(rank)]; }
  void attach_memory();
  Status watch(Link& peer);
  Status watch_control(Link& peer);
  Status watch_data(Link& peer);
  void ask_for_control(Link& peer);
  void ask_for_data(Link& peer);
  void begin_to_connect(LateConnections::Use use, Link& peer);
  void on_note(Link& peer, std::span<const std::byte> note);
  void on_request(Link& peer);
  void take_connections();
  Status take_connection(Link& peer, LateConnections::Outcome& outcome);
  void on_event(Link& peer, std::uint64_t source, std::uint32_t events);
  void on_failure();
  void close_failed();
  void close_peer(Link& peer);
  void on_data_end(Link& peer);
  static void drop_wake_ups(Link& peer);
  void on_hang_up(Link& peer);
  void on_process_end(Link& peer);
  void take_absences();
  void take_events();
  void look_at_links();
  void look_at(Link& peer, Silence::Clock::time_point now);
  bool is_silent(Link& peer, std::size_t index, Silence::Sight sight, Silence::Clock::time_point now) const;
  static void beat(Link& peer);

  pid_t owner_ = getpid();
  int rank_;
  Bell bell_;
  Bells bells_;  // of the peers that share memory
  std::optional<SharedMemory> shared_;
  std::optional<Senders> senders_;  // to this rank, where many share memory
  std::vector<int> seen_senders_;
  std::vector<int> by_socket_;  // the ranks with a control connection that carries messages
  std::uint32_t n_absences_seen_ = 0;
  SealKind seals_;
  std::unique_ptr<LateConnections> late_connections_;
  Silence::Clock::duration link_timeout_;
  Silence::Clock::time_point looked_at_links_ = Silence::Clock::now();
  std::uint32_t n_looks_ = 0;
  EventLoop loop_;
  std::unique_ptr<SleepGate> gate_;  // of the bell and loop_
  std::vector<std::unique_ptr<Link>> links_;
  std::optional<SharedArena> arena_;
  std::atomic<std::uint32_t>* my_doorbell_ = nullptr;
  std::vector<Link*> sharing_;  // the links with rings
  std::vector<int> closed_;
  std::vector<int> late_;
  bool has_failed_ = false;  // a channel, since the last poll
  std::uint32_t n_polls_ = 0;
  std::uint32_t poll_period_ = 1;
  bool only_rings_ = false;
  bool looks_at_sockets_ = false;  // reads all sockets in every poll, without epoll
  std::atomic<bool> woken_by_socket_{false};
  std::atomic<bool> is_connecting_{false};
  // Events were taken from epoll since arm(): the caller of arm() may have read the channels before these events, and
  // not since.
  std::atomic<bool> took_events_{false};
};

void SocketMesh::attach_memory() {
  if (!shared_) return;
  const auto memory = shared_->segment.memory();
  const SegmentLayout& layout = shared_->layout;
  const int me = shared_->index_of(rank_);
  const SharedArena arena = layout.arena(memory, me);
  if (layout.n_members() > kFewMembers) senders_ = layout.senders(memory, me);
  for (const auto& each : links_) {
    if (each->info.rank == rank_) continue;
    if (!each->info.shares_memory) {
      if (each->control) by_socket_.push_back(each->info.rank);
      continue;
    }
    const int other = each->member = shared_->index_of(each->info.rank);
    std::optional<RingChannel::Noted> noted;
    if (senders_) noted = RingChannel::Noted{layout.senders(memory, other), me};
    each->control_ring.emplace(layout.control_ring(memory, me, other), layout.control_ring(memory, other, me), noted);
    each->data_ring.emplace(layout.data_ring(memory, me, other), layout.data_ring(memory, other, me));
    each->doorbell = &arena.doorbell(other);
    sharing_.push_back(each.get());
  }
  my_doorbell_ = &arena.doorbell(me);
  if (sharing_.size() + 1 == links_.size() && layout.slot_bytes() != 0) arena_ = arena;
}

const std::vector<int>* SocketMesh::take_senders() {
  if (!senders_) return nullptr;
  seen_senders_ = by_socket_;
  senders_->take([this](int member) {
    const auto place = static_cast<std::size_t>(member);
    const bool is_other = place < shared_->members.size() && shared_->members[place] != rank_;
    if (is_other) seen_senders_.push_back(shared_->members[place]);
  });
  return &seen_senders_;
}

Status SocketMesh::watch() {
  for (const auto& each : links_) {
    if (each->info.rank == rank_) continue;
    if (Status watched = watch(*each); !watched.ok()) return watched;
  }
  if (late_connections_) {
    if (Status watched = loop_.add(late_connections_->fd(), EPOLLIN, token_of(size(), kControl)); !watched.ok())
      return watched;
    take_connections();  // those that came while this rank was joining
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
  Status watched = watch_control(peer);
  if (watched.ok() && peer.process.valid()) {
    watched = loop_.add(peer.process.get(), EPOLLIN | EPOLLET, token_of(peer.info.rank, kProcess));
  }
  return watched.ok() ? watch_data(peer) : watched;
}

Status SocketMesh::watch_control(Link& peer) {
  peer.silences.resize(1);
  peer.deliveries.resize(1);
  const TcpChannel* const control = peer.control_socket();
  if (control == nullptr) return {};
  tune_connection(control->fd(), std::chrono::ceil<std::chrono::milliseconds>(link_timeout_));
  return loop_.add(control->fd(), TcpChannel::kEvents, token_of(peer.info.rank, kControl));
}

Status SocketMesh::watch_data(Link& peer) {
  Status watched;
  for (std::size_t i = 0; i < peer.n_data_sockets() && watched.ok(); ++i) {
    const int control = peer.control_socket()->fd();
    const int data = peer.data->socket(i).fd();
    tune_connection(data, std::chrono::ceil<std::chrono::milliseconds>(link_timeout_));
    peer.is_beside_control.push_back(SocketAddress::peer_of(data).ip() == SocketAddress::peer_of(control).ip());
    watched = loop_.add(data, TcpChannel::kEvents, token_of(peer.info.rank, kData + i));
  }
  peer.silences.resize(1 + peer.n_data_sockets());
  peer.deliveries.resize(1 + peer.n_data_sockets());
  return watched;
}

// --- late connections

// Of a pair that is not connected, the lower rank cannot ask: the higher one connects when it uses the pair itself, or
// when it is told to.
void SocketMesh::ask_for_control(Link& peer) {
  if (!late_connections_ || peer.closed || peer.has_rings() || peer.control) return;
  if (peer.info.rank > rank_ || std::exchange(peer.is_control_asked_for, true)) return;
  begin_to_connect(LateConnections::Use::kControl, peer);
}

// At the first use of the data channel of the pair.
void SocketMesh::ask_for_data(Link& peer) {
  if (!late_connections_ || peer.closed) return;
  if (!peer.control) {
    peer.awaits_control_for_data = true;
    ask_for_control(peer);
  } else if (!std::exchange(peer.is_data_asked_for, true)) {
    begin_to_connect(LateConnections::Use::kData, peer);
  }
}

// Rings the bell, so that a thread that is about to sleep goes on with it.
void SocketMesh::begin_to_connect(LateConnections::Use use, Link& peer) {
  if (late_connections_->connect(use, peer.info.rank)) {
    is_connecting_.store(true, std::memory_order_relaxed);
    bell_.ring();
  } else {
    peer.control->request();
  }
}

void SocketMesh::on_note(Link& peer, std::span<const std::byte> note) {
  if (note.empty()) {
    on_request(peer);
    return;
  }
  std::array<Count, kMostCounts> counts{};
  std::memcpy(counts.data(), note.data(), std::min(note.size(), sizeof(counts)));
  for (std::size_t i = 0; i < peer.deliveries.size(); ++i) {
    if (counts[i] != kSomeUnread) peer.deliveries[i].note_received(counts[i]);
  }
}

// The peer asks for connections. Only the higher rank is asked for them: else the peer is not believed.
void SocketMesh::on_request(Link& peer) {
  if (peer.info.rank < rank_ && !peer.data) ask_for_data(peer);
}

void SocketMesh::take_connections() {
  for (LateConnections::Outcome& each : late_connections_->poll()) {
    Link& peer = link(each.peer);
    if (each.why_not.empty()) {
      if (Status taken = take_connection(peer, each); !taken.ok()) each.why_not = taken.message();
    }
    if (!peer.closed && !each.why_not.empty()) {
      peer.why_not_connected = std::move(each.why_not);
      close_peer(peer);
    }
    took_events_.store(true, std::memory_order_relaxed);  // a lane may wait for this
  }
  is_connecting_.store(late_connections_->is_connecting(), std::memory_order_relaxed);
}

// From a peer that has left meanwhile, what it sent before is read.
Status SocketMesh::take_connection(Link& peer, LateConnections::Outcome& outcome) {
  if (outcome.use == LateConnections::Use::kData) {
    peer.data.emplace(std::move(outcome.sockets), seals_, [this] { on_failure(); });
    Status watched = watch_data(peer);
    if (peer.closed) peer.data->mark_closed();
    return watched;
  }
  if (peer.closed) return {};
  const int rank = peer.info.rank;
  peer.control.emplace(
      std::move(outcome.sockets), seals_, [this] { on_failure(); },
      [this, rank](std::span<const std::byte> note) { on_note(link(rank), note); });
  by_socket_.push_back(rank);
  late_.push_back(rank);
  Status watched = watch_control(peer);
  if (watched.ok() && peer.awaits_control_for_data) ask_for_data(peer);
  return watched;
}

void SocketMesh::forget(int peer) {
  if (!is_connected(peer)) close_peer(link(peer));
}

SocketMesh::~SocketMesh() {
  if (getpid() != owner_) {
    (void)late_connections_.release();  // its epoll is also the parent's
    return;
  }
  for (Link* peer : sharing_) {
    peer->control_ring->close();
    peer->data_ring->close();
  }
  if (shared_) {
    shared_->absences().note(shared_->index_of(rank_));
    notify(Urgency::kUrgent);
  }
  for (const auto& each : links_) {
    if (each->data) each->data->end();
    if (each->control) each->control->end();
  }
  // The sockets close gracefully, control before data, so that a peer reads the last control bytes before it sees the
  // end.
  for (const auto& each : links_) {
    each->control.reset();
    each->wake_ups.reset();
  }
}

void SocketMesh::poll_events() {
  if (looks_at_sockets_) {
    for (const auto& each : links_) {
      if (each->control) each->control->look_again();
      if (each->data) each->data->look_again();
    }
  }
  if (++n_polls_ >= poll_period_ || woken_by_socket_.load(std::memory_order_relaxed)) take_events();
  if (shared_ && shared_->absences().number() != n_absences_seen_) take_absences();
  if (has_failed_) close_failed();
}

// Rings the bell, since another thread may sleep, or be about to.
void SocketMesh::on_failure() {
  has_failed_ = true;
  bell_.ring();
}

void SocketMesh::close_failed() {
  has_failed_ = false;
  for (const auto& each : links_) {
    if (!each->has_failed()) continue;
    if (each->is_data_cut_off() && each->has_control()) {
      on_data_end(*each);
    } else {
      close_peer(*each);
    }
  }
}

std::string SocketMesh::why_closed(int peer) const {
  Link& from = link(peer);
  if (from.fell_silent()) {
    const auto seconds = std::chrono::duration<double>(link_timeout_).count();
    return " is gone: its host has acknowledged nothing for " + std::to_string(std::lround(seconds)) +
           " seconds (CIRANDA_LINK_TIMEOUT), so the host is down, or a link to it is cut.";
  }
  if (!from.why_not_connected.empty()) {
    return (from.control ? " cannot be connected to for its data, from " : " cannot be connected to, from ") +
           link(rank_).info.text() + ", " + link(rank_).info.address + ": " + from.why_not_connected +
           ". Where hosts have several networks, CIRANDA_INTERFACE names the one to use.";
  }
  if (from.held_back) {
    const Delivery& delivery = from.deliveries[*from.held_back];
    const auto records = [](Count count) { return std::to_string(std::max<Count>(count, 1) - 1); };
    return " is lost: what " + link(rank_).info.text() + " sent to it on " + name_of(*from.held_back) +
           " does not arrive. Its host has acknowledged " + records(delivery.n_awaited()) +
           " records, but it has received only " + records(delivery.n_received()) + " for " +
           std::to_string(std::lround(2 * std::chrono::duration<double>(link_timeout_).count())) +
           " seconds (twice CIRANDA_LINK_TIMEOUT): something between the two holds records back.";
  }
  for (const std::optional<RecordChannel>* channel : {&from.control, &from.data}) {
    if (!*channel || !(*channel)->failure()) continue;
    const RecordChannel::Failure& failure = *(*channel)->failure();
    if (failure.defect == RecordChannel::Defect::kCut) continue;
    return " is lost: what it sent to " + link(rank_).info.text() + " was changed on its way. Record " +
           std::to_string(failure.record) + " on " + name_of(channel == &from.control ? 0 : 1 + failure.socket) +
           " is not as it was sealed: memory, a network card or what lies between the two is faulty, or somebody "
           "interferes.";
  }
  return {};
}

void SocketMesh::take_events() {
  n_polls_ = 0;
  woken_by_socket_.store(false, std::memory_order_relaxed);
  bool is_connecting = is_connecting_.load(std::memory_order_relaxed);
  for (const EventLoop::Event& event : loop_.wait(0)) {
    took_events_.store(true, std::memory_order_relaxed);
    if (event.token == token_of(size(), kControl)) {
      is_connecting = true;
      continue;
    }
    on_event(link(static_cast<int>(event.token >> kSourceBits)), event.token & ((1U << kSourceBits) - 1), event.events);
  }
  if (is_connecting) take_connections();
  if (!only_rings_) look_at_links();
}

void SocketMesh::look_at_links() {
  const auto now = Silence::Clock::now();
  if (now - looked_at_links_ < link_timeout_ / Silence::kLooks) return;
  looked_at_links_ = now;
  ++n_looks_;
  if (late_connections_) take_connections();  // some that connect may have said nothing for too long
  for (const auto& each : links_) {
    if (each->control && !each->closed) look_at(*each, now);
  }
}

// Every other time with a beat, so that there is something to acknowledge, unless the peer's host answers nothing: what
// is more would only hide from the kernel that few packets are lost.
void SocketMesh::look_at(Link& peer, Silence::Clock::time_point now) {
  if (peer.data_ended_at && now - *peer.data_ended_at >= link_timeout_ / Silence::kLooks) close_peer(peer);
  bool is_answering = false;
  for (std::size_t i = 0; i < peer.silences.size() && !peer.closed; ++i) {
    const TcpChannel& socket = i == 0 ? *peer.control_socket() : peer.data->socket(i - 1);
    const Silence::Sight sight = Silence::sight_of(socket.fd());
    const auto n_acknowledged = sight.has_outstanding ? std::nullopt : peer.n_sent(i);
    if (i == 0) is_answering = !sight.has_outstanding || sight.last_answer_ago < link_timeout_ / Silence::kLooks;
    if (is_silent(peer, i, sight, now)) {
      close_peer(peer);
    } else if (peer.deliveries[i].is_held_back(n_acknowledged, now, link_timeout_)) {
      peer.held_back = i;
      close_peer(peer);
    }
  }
  if (is_answering && !peer.closed && n_looks_ % 2 == 0) beat(peer);
}

bool SocketMesh::is_silent(Link& peer, std::size_t index, Silence::Sight sight, Silence::Clock::time_point now) const {
  // Probes are so few that a network may lose several in a row. Beats are better evidence.
  if (index > 0 && peer.is_beside_control[index - 1]) sight.was_probed_in_vain = false;
  peer.is_silent = peer.silences[index].is_too_long(sight, now, link_timeout_);
  return peer.is_silent;
}

void SocketMesh::beat(Link& peer) {
  std::array<Count, kMostCounts> counts{};
  const std::size_t n_counts = 1 + peer.n_data_sockets();
  for (std::size_t i = 0; i < n_counts; ++i) counts[i] = peer.n_received(i).value_or(kSomeUnread);
  (void)peer.control->note(std::as_bytes(std::span(counts)).first(n_counts * sizeof(Count)));
}

void SocketMesh::on_event(Link& peer, std::uint64_t source, std::uint32_t events) {
  switch (source) {
    case kProcess: on_process_end(peer); return;
    case kControl:
      if (peer.has_rings()) {
        drop_wake_ups(peer);
      } else {
        peer.control->on_events(0, events);
      }
      if ((events & kHangUp) != 0) on_hang_up(peer);
      return;
    default:
      peer.data->on_events(source - kData, events);
      // An orderly end of the data connection, after its last record, comes with that of the control connection, whose
      // last bytes may still be in flight. Any other end means that the peer is gone.
      if ((events & (EPOLLHUP | EPOLLERR)) != 0) on_data_end(peer);
      return;
  }
}

// The peer has ended, or lost this rank. Why, it says on the control connection, whose bytes may have taken another
// way: they are waited for until it ends, too, or a look finds that it does not.
void SocketMesh::on_data_end(Link& peer) {
  if (!peer.has_control()) {
    close_peer(peer);
  } else if (!peer.data_ended_at) {
    peer.data_ended_at = Silence::Clock::now();
  }
}

// A peer that leaves notes that before it closes its connection; one that becomes another program does not.
void SocketMesh::on_hang_up(Link& peer) {
  if (!peer.has_rings()) {
    close_peer(peer);
  } else if (shared_->absences().place_of(peer.member) == 0) {
    on_process_end(peer);
  }
}

// Notes the end of a peer for those of this host that do not watch it. Looks at all others of the host too: those that
// watched one of them may have ended with it.
void SocketMesh::on_process_end(Link& peer) {
  if (!peer.has_rings()) {
    close_peer(peer);
    return;
  }
  const Absences absences = shared_->absences();
  absences.note(peer.member);
  for (const Link* each : sharing_) {
    const bool may_be_watched = each->bell.has_value() && each->info.pid != static_cast<int>(getpid());
    if (may_be_watched && absences.place_of(each->member) == 0 && has_ended(each->info.pid))
      absences.note(each->member);
  }
  take_absences();
  notify(Urgency::kUrgent);
}

// In the order in which they were noted: the first may be the cause of the others.
void SocketMesh::take_absences() {
  const Absences absences = shared_->absences();
  n_absences_seen_ = absences.number();
  std::vector<std::pair<std::uint32_t, Link*>> gone;
  for (Link* each : sharing_) {
    const std::uint32_t place = absences.place_of(each->member);
    if (place != 0 && !each->closed) gone.emplace_back(place, each);
  }
  std::sort(gone.begin(), gone.end());
  for (const auto& [place, each] : gone) close_peer(*each);
}

void SocketMesh::close_peer(Link& peer) {
  if (std::exchange(peer.closed, true)) return;
  if (late_connections_) late_connections_->forget(peer.info.rank);
  if (peer.has_rings()) {
    peer.control_ring->close();
    peer.data_ring->close();
    if (senders_) senders_->note(peer.member);  // it may have ended between its last message and the note of it
  } else if (!peer.is_told_why()) {
    if (peer.control) peer.control->mark_closed();
    if (peer.data) peer.data->mark_closed();
  }
  closed_.push_back(peer.info.rank);
}

void SocketMesh::drop_wake_ups(Link& peer) {
  std::array<std::byte, 64> dropped;
  const int fd = peer.wake_ups->fd();
  while (recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT) == static_cast<ssize_t>(dropped.size())) {
  }
}

void SocketMesh::notify(Urgency urgency) {
  if (sharing_.empty()) return;
  full_fence();
  for (Link* peer : sharing_) {
    if (!wants(urgency, peer->doorbell->load(std::memory_order_relaxed)) || peer->doorbell->exchange(0) == 0) continue;
    if (peer->bell && bells_.ring(*peer->bell)) continue;
    const std::byte byte{1};
    if (peer->wake_ups) (void)send(peer->wake_ups->fd(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
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
    at_most = std::min<std::chrono::nanoseconds>(at_most.value_or(link_timeout_), link_timeout_ / Silence::kLooks);
  if (is_connecting_.load(std::memory_order_relaxed))
    at_most = std::min<std::chrono::nanoseconds>(at_most.value_or(kBetweenLooks), kBetweenLooks);
  const bool has_news = gate_->sleep(at_most);
  if (has_news) bell_.drain();
  if (has_news || !only_rings_) woken_by_socket_.store(true, std::memory_order_relaxed);
}

}  // namespace

void announce_end(const SharedMemory& shared, int rank, std::span<const BellPlace> bells) {
  shared.absences().note(shared.index_of(rank));
  Bells all;
  for (const BellPlace& each : bells) all.ring(each);
}

Result<std::unique_ptr<Mesh>> make_socket_mesh(SocketMeshParts parts) {
  auto loop = EventLoop::create();
  auto gate = loop.ok() ? SleepGate::create(parts.bell.fd(), loop.value().fd()) : loop.status();
  if (!gate.ok()) {
    std::vector<BellPlace> bells;
    for (const SocketMeshPeer& each : parts.peers) {
      if (each.bell) bells.push_back(*each.bell);
    }
    if (parts.shared) announce_end(*parts.shared, parts.rank, bells);
    return gate.status();
  }
  auto mesh = std::make_unique<SocketMesh>(std::move(parts), std::move(loop).value(), std::move(gate).value());
  if (Status watched = mesh->watch(); !watched.ok()) return watched;
  return std::unique_ptr<Mesh>(std::move(mesh));
}

}  // namespace ciranda
