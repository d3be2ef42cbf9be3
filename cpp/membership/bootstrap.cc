#include "membership/bootstrap.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/spanning_tree.hpp"
#include "crypto/fast_aes.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/host_identity.hpp"
#include "membership/host_links.hpp"
#include "membership/late_connector.hpp"
#include "membership/pair_connector.hpp"
#include "membership/shm_probe.hpp"
#include "membership/store_client.hpp"
#include "transport/pair_probe.hpp"
#include "transport/process.hpp"
#include "transport/socket.hpp"
#include "transport/socket_mesh.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

// The least one-way delay of a long link. Shorter delays could as well be caused by a busy host.
constexpr auto kLongLink = std::chrono::milliseconds(1);
// Twice this is more than kernels choose by themselves (4 MiB).
constexpr int kBytesOnLongLinks = 4 << 20;

// How long a rank that cannot join tries to tell the others.
constexpr auto kLastWords = std::chrono::seconds(1);

Result<std::vector<SocketAddress>> parse_all(const std::vector<std::string>& texts) {
  std::vector<SocketAddress> addresses;
  for (const std::string& text : texts) {
    auto address = SocketAddress::parse(text);
    if (!address.ok()) return address.status();
    addresses.push_back(address.value());
  }
  return addresses;
}

void warn_by(const std::function<void(const std::string&)>& told, int rank, const std::string& text) {
  if (told) {
    told(text);
  } else {
    std::fprintf(stderr, "ciranda: warning: rank %d: %s\n", rank, text.c_str());
  }
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string text_of(const std::string& value) { return "'" + value + "'"; }
template <typename Number>
std::string text_of(Number value) {
  return std::to_string(value);
}

// Mismatch if a setting differs between `here` and `there`, the settings of the rank with that name.
Status compare_settings(const CommonSettings& here, const CommonSettings& there, const std::string& name) {
  Status status;
  for_each_common_setting([&](const std::string& what, auto setting) {
    if (!status.ok() || here.*setting == there.*setting) return;
    status = Status::mismatch(what + " is " + text_of(here.*setting) + " here but " + text_of(there.*setting) + " on " +
                              name + ": set it to the same value on all ranks");
  });
  return status;
}

SocketAddress choose_address(const StoreClient& store) {
  const SocketAddress reached_from = store.local_address();
  if (!reached_from.is_loopback()) return reached_from;
  // The store is on this host. If it has other addresses too, ranks of other hosts use these, and can also reach this
  // rank there.
  const auto interfaces = interface_addresses();
  for (const SocketAddress& candidate : store.candidates()) {
    const bool is_ours = std::any_of(interfaces.begin(), interfaces.end(), [&candidate](const InterfaceAddress& each) {
      return each.address.same_ip(candidate);
    });
    if (!candidate.is_loopback() && is_ours) return candidate;
  }
  return reached_from;
}

// The interfaces on which other ranks connect to this one: those with these names or addresses. Without names, the one
// that reaches the store, or on which other hosts reach the store. InvalidArgument if an interface does not exist.
Result<std::vector<InterfaceAddress>> choose_interfaces(const std::vector<std::string>& names,
                                                        const StoreClient& store) {
  std::vector<InterfaceAddress> chosen;
  for (const std::string& name : names) {
    auto found = find_interface(name, store.local_address().family());
    if (!found.ok()) return found.status();
    chosen.push_back(std::move(found).value());
  }
  if (chosen.empty()) chosen.push_back({"", choose_address(store)});
  return chosen;
}

// The state of one rank's joining, step by step.
class Joining {
 public:
  explicit Joining(const BootstrapOptions& options)
      : options_(options),
        limit_(Clock::now() + options.start_timeout, options.interrupted),
        identity_(identify_host(options.shm_folder)),
        host_(options.host.empty() ? host_name() : options.host),
        interface_names_(split_candidates(options.interface)),
        n_sockets_(options.n_sockets > 0 ? options.n_sockets : std::max<std::size_t>(interface_names_.size(), 1)) {}

  Result<std::unique_ptr<Mesh>> run();

 private:
  Status check_options() const;
  Result<std::unique_ptr<Mesh>> make_mesh_of_one();
  Status find_peers();
  Status listen(const StoreClient& store);
  Endpoint describe_myself() const;
  Status read_endpoints(const std::vector<Blob>& blobs);
  Status connect_control();
  Status share_memory();
  Status connect_rest_of_host();
  void find_group();
  Status watch_some();
  Status watch_process(int rank);
  bool watches_in_group(int rank) const;
  bool reaches_group() const;
  void withdraw(const Status& why);
  bool can_measure_memory() const;
  Status measure();
  std::optional<HostCosts> measure_memory();
  std::optional<HostCosts> measure_links() const;
  bool has_long_links() const;
  SealKind kind_of_seals() const;
  Result<std::unique_ptr<Mesh>> make_mesh();
  SocketMeshPeer make_peer(int rank);
  std::unique_ptr<LateConnections> make_late_connections();

  const Endpoint& endpoint(int rank) const { return endpoints_[static_cast<std::size_t>(rank)]; }
  std::string key() const { return "epoch " + std::to_string(options_.epoch); }
  Credentials credentials_of_store() const { return {options_.secret, options_.job, 0}; }
  std::string key_of_costs() const { return "costs of " + key(); }
  bool shares(int rank) const { return contains(sharing_, rank); }
  // Of ranks that reach each other by sockets only: those that are connected from the start.
  bool is_linked(int rank) const { return tree_->are_linked(options_.rank, rank); }
  // Those that watch each other keep a connection: it ends also if the process becomes another program.
  bool needs_socket(int rank) const {
    return watches_in_group(rank) || (shares(rank) ? !needs_few_sockets_ : is_linked(rank));
  }
  // True if process ids of that rank are those of this one, and it is another process: within one process (ranks as
  // threads) there is none to watch.
  bool is_watchable(int rank) const {
    return endpoint(rank).machine == identity_.machine && endpoint(rank).pid != static_cast<std::uint32_t>(getpid());
  }
  BellPlace bell_of(int rank) const {
    return {static_cast<pid_t>(endpoint(rank).pid), static_cast<int>(endpoint(rank).bell_fd)};
  }
  std::string name(int rank) const;
  std::vector<int> others() const;
  void warn(const std::string& text) const;
  Status mine(const Status& status) const;

  const BootstrapOptions& options_;
  WaitLimit limit_;
  HostIdentity identity_;
  std::string host_;
  std::optional<Bell> bell_;
  std::vector<std::string> interface_names_;
  std::size_t n_sockets_;
  std::vector<InterfaceAddress> interfaces_;  // on which other ranks connect to this one
  std::vector<UniqueFd> listeners_;           // one for each interface
  std::vector<Endpoint> endpoints_;
  std::optional<SpanningTree> tree_;
  std::vector<UniqueFd> processes_;  // by rank; empty for those that this rank does not watch
  std::vector<int> group_;           // the ranks that try to share memory with this one, and itself; else empty
  std::unique_ptr<PairConnector> connector_;
  std::optional<StoreClient> store_;
  std::optional<SharedMemory> shared_;
  std::vector<int> sharing_;
  bool needs_few_sockets_ = false;               // these ranks need connections only to those they watch
  std::vector<std::optional<PairCosts>> pairs_;  // by rank; empty: nothing was measured
};

Result<std::unique_ptr<Mesh>> Joining::run() {
  if (Status checked = check_options(); !checked.ok()) return checked;
  auto bell = Bell::create();
  if (!bell.ok()) return mine(bell.status());
  bell_.emplace(std::move(bell).value());
  if (options_.size == 1) return make_mesh_of_one();
  for (const auto step : {&Joining::find_peers, &Joining::connect_control, &Joining::share_memory,
                          &Joining::connect_rest_of_host, &Joining::measure}) {
    if (Status done = (this->*step)(); !done.ok()) {
      withdraw(done);
      return mine(done);
    }
  }
  return make_mesh();
}

Status Joining::check_options() const {
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size) {
    return Status::invalid_argument("rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) +
                                    " is not possible: the rank must be from 0 to the size less one");
  }
  if (options_.slot_bytes == 0 || options_.slot_bytes % SharedArena::kAlignment != 0) {
    return Status::invalid_argument("slots of " + std::to_string(options_.slot_bytes) +
                                    " bytes are not possible: it must be a multiple of 4096");
  }
  static_assert(kMostSockets <= kMostAddresses, "as many interfaces as sockets can be told of");
  if (std::max(n_sockets_, interface_names_.size()) > kMostSockets) {
    return Status::invalid_argument("at most " + std::to_string(kMostSockets) +
                                    " interfaces, and sockets between two ranks, are possible");
  }
  return {};
}

Result<std::unique_ptr<Mesh>> Joining::make_mesh_of_one() {
  const SegmentLayout layout(1, options_.slot_bytes);
  auto segment = ShmSegment::anonymous(layout.n_bytes());
  if (!segment.ok()) return mine(segment.status());
  SocketMeshParts parts{0, {}, std::move(*bell_), SharedMemory{std::move(segment).value(), layout, {0}}};
  SocketMeshPeer myself;
  myself.info = {0, static_cast<int>(getpid()), host_, "", true};
  parts.peers.push_back(std::move(myself));
  return make_socket_mesh(std::move(parts));
}

Status Joining::find_peers() {
  auto store = StoreClient::connect(options_.store, credentials_of_store(), options_.rank, limit_);
  if (!store.ok()) return store.status();
  store_.emplace(std::move(store).value());
  if (Status listening = listen(*store_); !listening.ok()) return listening;
  auto blobs = store_->exchange(key(), options_.size, encode(describe_myself()), limit_);
  return blobs.ok() ? read_endpoints(blobs.value()) : blobs.status();
}

Status Joining::listen(const StoreClient& store) {
  auto chosen = choose_interfaces(interface_names_, store);
  const auto ports = parse_port_range(options_.port_range);
  if (!chosen.ok() || !ports.ok()) return chosen.ok() ? ports.status() : chosen.status();
  interfaces_ = std::move(chosen).value();
  for (const InterfaceAddress& each : interfaces_) {
    auto listener = listen_on(each.address, ports.value());
    if (!listener.ok()) return listener.status();
    listeners_.push_back(std::move(listener).value());
  }
  return {};
}

Endpoint Joining::describe_myself() const {
  Endpoint endpoint;
  endpoint.pid = static_cast<std::uint32_t>(getpid());
  endpoint.bell_fd = static_cast<std::uint32_t>(bell_->fd());
  endpoint.tries_shared_memory = options_.use_shared_memory;
  static_cast<CommonSettings&>(endpoint) = options_;
  endpoint.n_sockets = n_sockets_;
  endpoint.n_cores = static_cast<std::uint32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  endpoint.has_fast_aes = has_fast_aes();
  endpoint.costs = options_.costs;
  endpoint.host = host_;
  endpoint.host_id = options_.host_id.empty() ? identity_.shared_memory : options_.host_id;
  endpoint.machine = identity_.machine;
  for (const UniqueFd& each : listeners_) endpoint.addresses.push_back(SocketAddress::local_of(each.get()).to_string());
  return endpoint;
}

Status Joining::read_endpoints(const std::vector<Blob>& blobs) {
  PairConnectorOptions connecting;
  connecting.credentials = {options_.secret, options_.job, options_.epoch};
  connecting.rank = options_.rank;
  connecting.limit = limit_;
  connecting.look = [this] { return store_->look(); };
  connecting.on_retry = options_.tell;
  // It outlives this object, with the connector.
  connecting.on_refused = [told = options_.warn, rank = options_.rank](const std::string& what) {
    warn_by(told, rank, "refused: " + what);
  };
  const Endpoint mine = describe_myself();
  for (int rank = 0; rank < options_.size; ++rank) {
    auto decoded = decode_endpoint(blobs[static_cast<std::size_t>(rank)]);
    auto addresses = decoded.ok() ? parse_all(decoded.value().addresses) : decoded.status();
    if (!addresses.ok()) return Status::internal("rank " + std::to_string(rank) + " " + addresses.status().message());
    endpoints_.push_back(std::move(decoded).value());
    if (Status status = compare_settings(mine, endpoint(rank), name(rank)); !status.ok()) return status;
    connecting.peers.push_back({std::move(addresses).value(), name(rank)});
  }
  std::vector<std::string> hosts;
  for (const Endpoint& each : endpoints_) hosts.push_back(each.host);
  tree_.emplace(hosts, options_.uses_relays);
  processes_.resize(endpoints_.size());
  find_group();
  if (Status status = watch_some(); !status.ok()) return status;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    connecting.peers[rank].process_fd = processes_[rank].get();
  }
  connecting.interfaces = interfaces_;
  auto connector = PairConnector::create(std::move(listeners_), std::move(connecting));
  if (!connector.ok()) return connector.status();
  connector_ = std::move(connector).value();
  return {};
}

void Joining::find_group() {
  const Endpoint& mine_too = endpoint(options_.rank);
  for (int rank = 0; rank < options_.size; ++rank) {
    if (endpoint(rank).tries_shared_memory && endpoint(rank).host_id == mine_too.host_id) group_.push_back(rank);
  }
  if (!options_.use_shared_memory || group_.size() < 2) group_.clear();
}

// Those on this machine that have a connection with this rank in any case.
Status Joining::watch_some() {
  for (const int rank : others()) {
    const bool is_one = contains(group_, rank) ? watches_in_group(rank) : is_linked(rank);
    if (Status status = is_one ? watch_process(rank) : Status(); !status.ok()) return status;
  }
  return {};
}

bool Joining::watches_in_group(int rank) const {
  if (!contains(group_, rank)) return false;
  const auto place_of = [this](int each) {
    return static_cast<int>(std::find(group_.begin(), group_.end(), each) - group_.begin());
  };
  return are_linked(place_of(options_.rank), place_of(rank), static_cast<int>(group_.size()));
}

Status Joining::watch_process(int rank) {
  UniqueFd& process = processes_[static_cast<std::size_t>(rank)];
  if (process.valid() || !is_watchable(rank)) return {};
  process = open_process(static_cast<int>(endpoint(rank).pid));
  if (process.valid() || errno != ESRCH) return {};
  return Status::ranks_lost(name(rank) + " ended while the job was starting");
}

// Whether this rank can do with connections to few of its group: it has descriptors of the processes that it is to
// watch, and can open bells. It tries those of two ranks: the bell of each is tried by the one before it.
bool Joining::reaches_group() const {
  for (const int rank : group_) {
    if (endpoint(rank).machine != identity_.machine) return false;
    if (is_watchable(rank) && watches_in_group(rank) && !processes_[static_cast<std::size_t>(rank)].valid())
      return false;
  }
  const auto me = std::find(group_.begin(), group_.end(), options_.rank);
  const std::array<int, 2> tried{group_.front(), me + 1 == group_.end() ? group_.front() : *(me + 1)};
  return std::all_of(tried.begin(), tried.end(),
                     [this](int rank) { return Bell::open(bell_of(rank).first, bell_of(rank).second).ok(); });
}

// With those of this group that watch each other, since the trial of memory needs no more, and some of other groups.
Status Joining::connect_control() {
  std::vector<int> peers = others();
  std::erase_if(peers,
                [this](int rank) { return contains(group_, rank) ? !watches_in_group(rank) : !is_linked(rank); });
  return connector_->connect(Role::kControl, peers);
}

Status Joining::share_memory() {
  if (group_.empty()) return {};
  ShmProbeOptions probe;
  probe.group = group_;
  probe.needs_few_sockets = reaches_group();
  const bool all = probe.group.size() == endpoints_.size();
  probe.rank = options_.rank;
  probe.slot_bytes = all ? options_.slot_bytes : 0;
  probe.folder = options_.shm_folder;
  probe.limit = limit_;
  probe.control = [this](int rank) -> const KeyedSocket& { return connector_->socket(Role::kControl, rank); };
  probe.name = [this](int rank) { return name(rank); };
  probe.warn = [this](const std::string& text) { warn(text); };
  auto result = probe_shared_memory(probe);
  if (!result.ok()) {
    // The rank that gave up joining may have done so because another was lost.
    return connector_->with_the_dead(result.status());
  }
  if (result.value().shared) shared_.emplace(std::move(*result.value().shared));
  sharing_ = std::move(result.value().ranks);
  needs_few_sockets_ = result.value().needs_few_sockets;
  return {};
}

Status Joining::connect_rest_of_host() {
  std::vector<int> peers = group_;
  std::erase_if(peers, [this](int rank) { return rank == options_.rank || !needs_socket(rank); });
  for (const int rank : peers) {
    if (Status status = watch_process(rank); !status.ok()) return status;
  }
  return connector_->connect(Role::kControl, peers);
}

// Tells the other ranks that this one does not come, and why: they may wait for it. Those of this host may even have
// begun to use the memory, and see no connection of this one end. The store is told over another connection, since that
// of this rank may be what is wrong. What is over time is so for all ranks.
void Joining::withdraw(const Status& why) {
  if (shared_) {
    std::vector<BellPlace> bells;
    for (const int rank : sharing_) bells.push_back(bell_of(rank));
    announce_end(*shared_, options_.rank, bells);
  }
  if (!store_ || why.kind() == ErrorKind::kTimeout) return;
  const WaitLimit limit(Clock::now() + kLastWords);
  auto store = StoreClient::connect(options_.store, credentials_of_store(), options_.rank, limit);
  if (store.ok()) store.value().withdraw({key(), key_of_costs()}, options_.size, why.message(), limit);
}

// The same on all ranks. If ranks outnumber cores, a measurement would be the time that the partner waits for a core.
bool Joining::can_measure_memory() const { return endpoints_.size() <= endpoints_.front().n_cores; }

// Without shared memory of all ranks, algorithms use channels, so links are measured. A rank without known costs uses
// the measured ones. All ranks exchange them, because all must choose the same algorithms. The end of the exchange also
// means that all ranks have finished with the slots.
Status Joining::measure() {
  const bool all_share = sharing_.size() == endpoints_.size();
  if (!options_.autotune || (all_share && !can_measure_memory())) return {};
  const std::optional<HostCosts> measured = all_share ? measure_memory() : measure_links();
  auto blobs = store_->exchange(key_of_costs(), options_.size, encode(measured), limit_);
  if (!blobs.ok()) return connector_->with_the_dead(blobs.status());
  for (int rank = 0; rank < options_.size; ++rank) {
    auto costs = decode_costs(blobs.value()[static_cast<std::size_t>(rank)]);
    if (!costs.ok()) return Status::internal(name(rank) + " " + costs.status().message());
    auto& known = endpoints_[static_cast<std::size_t>(rank)].costs;
    if (!known) known = costs.value();
  }
  return {};
}

std::optional<HostCosts> Joining::measure_memory() {
  const auto deadline = Clock::now() + options_.measuring_limit;
  pairs_ = probe_pairs(shared_->layout.arena(shared_->segment.memory(), options_.rank), deadline);
  const auto slowest = slowest_of(pairs_);
  return slowest ? std::optional(host_costs_of(*slowest)) : std::nullopt;
}

// The delay of the longest link that is there, if it is longer than the delays of busy ends: the way from any rank to
// any other leads over links that some rank measures. Otherwise the assumed costs apply.
std::optional<HostCosts> Joining::measure_links() const {
  std::chrono::nanoseconds one_way{};
  for (const int rank : others()) {
    if (shares(rank) || !needs_socket(rank)) continue;
    const auto round_trip = least_round_trip(connector_->socket(Role::kControl, rank).fd.get());
    one_way = std::max<std::chrono::nanoseconds>(one_way, round_trip.value_or(std::chrono::microseconds(0)) / 2);
  }
  if (one_way < kLongLink) return std::nullopt;
  HostCosts costs;
  costs.link_round_ns = static_cast<std::uint64_t>(one_way.count());
  return within_bounds(costs);
}

// The same on all ranks.
SealKind Joining::kind_of_seals() const {
  const bool all_are_fast =
      std::all_of(endpoints_.begin(), endpoints_.end(), [](const Endpoint& each) { return each.has_fast_aes; });
  return {wire_level_named(options_.wire), all_are_fast ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305};
}

bool Joining::has_long_links() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const Endpoint& each) {
    return each.costs && std::chrono::nanoseconds(each.costs->link_round_ns) >= kLongLink;
  });
}

Result<std::unique_ptr<Mesh>> Joining::make_mesh() {
  SocketMeshParts parts{options_.rank, {}, std::move(*bell_), std::move(shared_), kind_of_seals()};
  parts.link_timeout = options_.link_timeout;
  for (int rank = 0; rank < options_.size; ++rank) parts.peers.push_back(make_peer(rank));
  parts.late_connections = make_late_connections();
  auto mesh = make_socket_mesh(std::move(parts));
  return mesh.ok() ? std::move(mesh) : Result<std::unique_ptr<Mesh>>(mine(mesh.status()));
}

SocketMeshPeer Joining::make_peer(int rank) {
  const Endpoint& from = endpoint(rank);
  SocketMeshPeer peer;
  const bool is_me = rank == options_.rank;
  peer.info = {rank,
               static_cast<int>(from.pid),
               from.host,
               from.addresses.front(),
               is_me || shares(rank),
               static_cast<int>(from.n_cores),
               from.costs,
               pairs_.empty() ? std::nullopt : pairs_[static_cast<std::size_t>(rank)]};
  if (is_me) return peer;
  if (needs_socket(rank)) peer.control = connector_->take(Role::kControl, rank);
  peer.process = std::move(processes_[static_cast<std::size_t>(rank)]);
  if (shares(rank) && from.machine == identity_.machine) peer.bell = bell_of(rank);
  return peer;
}

// Null if all data goes through memory: then nobody needs to connect to this rank any more.
std::unique_ptr<LateConnections> Joining::make_late_connections() {
  LateConnectorOptions options;
  options.rank = options_.rank;
  for (int rank = 0; rank < options_.size; ++rank) {
    options.may_connect.push_back(rank != options_.rank && !shares(rank));
    options.lacks_control.push_back(!needs_socket(rank));
  }
  if (std::count(options.may_connect.begin(), options.may_connect.end(), true) == 0) return nullptr;
  options.n_sockets = static_cast<int>(n_sockets_);
  if (has_long_links()) options.n_bytes_to_send = kBytesOnLongLinks;
  options.limit = options_.start_timeout;
  return std::make_unique<LateConnector>(std::move(connector_), std::move(options));
}

std::string Joining::name(int rank) const {
  return "rank " + std::to_string(rank) + " on " + endpoint(rank).host + " (" + endpoint(rank).addresses.front() + ")";
}

std::vector<int> Joining::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank) ranks.push_back(rank);
  }
  return ranks;
}

void Joining::warn(const std::string& text) const { warn_by(options_.warn, options_.rank, text); }

Status Joining::mine(const Status& status) const {
  return {status.kind(), "rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) + " on " +
                             host_ + " could not join: " + status.message()};
}

}  // namespace

std::vector<std::string> split_candidates(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Result<std::unique_ptr<Mesh>> join_world(const BootstrapOptions& options) { return Joining(options).run(); }

}  // namespace ciranda
