#include "membership/store_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/earliest.hpp"
#include "membership/acceptor.hpp"
#include "membership/sealed_messages.hpp"
#include "membership/store_exchanges.hpp"
#include "transport/bell.hpp"
#include "transport/socket.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {
namespace {

// An authenticated rank.
struct Client {
  Client(ConnectionId number, Admitted admitted)
      : id(number), socket(std::move(admitted.socket.fd)), address(admitted.address), messages(admitted.socket.keys) {}

  ConnectionId id;
  UniqueFd socket;
  SocketAddress address;
  SealedMessages messages;
  std::vector<std::byte> outgoing;
  std::size_t n_sent = 0;
};

// The next that has come whole, if any.
Result<std::optional<ExchangeRequest>> next_request(Client& from) {
  auto message = from.messages.next(kMostRequestBytes);
  if (!message.ok()) {
    return Status(message.status().kind(),
                  "the rank at " + from.address.to_string() + " " + message.status().message());
  }
  if (!message.value()) return std::optional<ExchangeRequest>();
  auto request = decode_request(*message.value());
  if (!request.ok()) return request.status();
  return std::optional(std::move(request).value());
}

void print_refusal(const std::string& what) { std::fprintf(stderr, "ciranda: store: refused: %s\n", what.c_str()); }

struct Listeners {
  std::vector<UniqueFd> sockets;
  std::uint16_t port = 0;
};

// Listens on all addresses at one port.
Result<Listeners> listen_at(const std::vector<SocketAddress>& addresses, PortRange ports) {
  Listeners result;
  for (const SocketAddress& address : addresses) {
    auto socket = listen_on(address, ports);
    if (!socket.ok()) return socket.status();
    result.port = SocketAddress::local_of(socket.value().get()).port();
    ports = {result.port, result.port};
    result.sockets.push_back(std::move(socket).value());
  }
  return result;
}

// A port that is free on the first address may be in use on the second; then another port is tried.
Result<Listeners> listen_at_any_of(const std::vector<SocketAddress>& addresses, PortRange ports) {
  constexpr int kTries = 16;
  const int n_tries = ports.any() ? kTries : ports.high - ports.low + 1;
  Status last;
  for (int i = 0; i < n_tries; ++i) {
    const auto port = static_cast<std::uint16_t>(ports.any() ? 0 : ports.low + i);
    auto listeners = listen_at(addresses, {port, port});
    if (listeners.ok()) return listeners;
    last = listeners.status();
  }
  if (n_tries == 1 || ports.any()) return last;
  return Status::invalid_argument("the store found no port of the range " + ports.to_string() +
                                  " that is free on all its addresses; the last try: " + last.message());
}

class Service final : public StoreServer {
 public:
  static Result<std::unique_ptr<Service>> create(const StoreServerOptions& options);

  Service(EventLoop loop, Bell bell, std::uint16_t port, int size)
      : loop_(std::move(loop)), bell_(std::move(bell)), port_(port), exchanges_(static_cast<std::uint32_t>(size)) {}
  ~Service() override { close(); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::uint16_t port() const override { return port_; }

  void lose(std::uint32_t rank, std::string why) override {
    {
      const std::lock_guard lock(lost_mutex_);
      lost_.emplace_back(rank, std::move(why));
    }
    bell_.ring();
  }

  void close() override {
    const std::lock_guard lock(close_mutex_);
    if (!thread_.joinable()) return;
    if (getpid() != owner_) {
      thread_.detach();  // a forked child has no such thread
      return;
    }
    stop_.store(true);
    bell_.ring();
    thread_.join();
    acceptor_.reset();
    clients_.clear();
  }

 private:
  void run();
  void take_lost();
  int timeout_ms(Clock::time_point now) const;
  void on_event(const EventLoop::Event& event, Clock::time_point now);
  void on_readable(Client& client, Clock::time_point now);
  void deliver(const std::vector<StoreReply>& replies);
  void flush(Client& client);
  void drop(Client& client);

  pid_t owner_ = getpid();
  EventLoop loop_;
  Bell bell_;
  std::uint16_t port_;
  StoreExchanges exchanges_;
  std::optional<Acceptor> acceptor_;
  std::map<int, Client> clients_;
  ConnectionId next_id_ = 1;
  std::atomic<bool> stop_{false};
  std::mutex lost_mutex_;
  std::vector<std::pair<std::uint32_t, std::string>> lost_;  // given to lose(), for the thread
  std::mutex close_mutex_;
  std::thread thread_;
};

Result<std::unique_ptr<Service>> Service::create(const StoreServerOptions& options) {
  auto ports = parse_port_range(options.port_range);
  if (!ports.ok()) return ports.status();
  if (options.size < 1 || options.bind.empty()) {
    return Status::invalid_argument("a store needs an address and a size of at least 1");
  }
  std::vector<SocketAddress> addresses;
  for (const std::string& ip : options.bind) {
    auto address = SocketAddress::from_ip(ip, 0);
    if (!address.ok()) return address.status();
    addresses.push_back(address.value());
  }
  auto listeners = listen_at_any_of(addresses, ports.value());
  if (!listeners.ok()) return listeners.status();
  auto loop = EventLoop::create();
  auto bell = Bell::create();
  if (!loop.ok() || !bell.ok()) return loop.ok() ? bell.status() : loop.status();
  auto service =
      std::make_unique<Service>(std::move(loop).value(), std::move(bell).value(), listeners.value().port, options.size);
  const int bell_fd = service->bell_.fd();
  if (Status added = service->loop_.add(bell_fd, EPOLLIN, static_cast<std::uint64_t>(bell_fd)); !added.ok()) {
    return added;
  }
  AcceptorOptions accepting;
  accepting.credentials = {options.secret, options.job, 0};
  accepting.expectation.is_store = true;
  accepting.deadline = options.handshake_limit;
  accepting.most_half_open += static_cast<std::size_t>(options.size);
  accepting.on_refused = options.on_refused ? options.on_refused : print_refusal;
  auto acceptor = Acceptor::create(service->loop_, std::move(listeners.value().sockets), std::move(accepting));
  if (!acceptor.ok()) return acceptor.status();
  service->acceptor_.emplace(std::move(acceptor).value());
  service->thread_ = std::thread([raw = service.get()] { raw->run(); });
  return service;
}

void Service::run() {
  while (!stop_.load()) {
    const auto events = loop_.wait(timeout_ms(Clock::now()));
    const auto now = Clock::now();
    for (const EventLoop::Event& event : std::vector(events.begin(), events.end())) on_event(event, now);
    take_lost();
    acceptor_->expire(now);
    deliver(exchanges_.expire(now));
  }
}

void Service::take_lost() {
  decltype(lost_) lost;
  {
    const std::lock_guard lock(lost_mutex_);
    lost.swap(lost_);
  }
  for (const auto& [rank, why] : lost) deliver(exchanges_.lose(rank, why));
}

int Service::timeout_ms(Clock::time_point now) const {
  const auto next = earliest(acceptor_->next_deadline(), exchanges_.next_deadline());
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void Service::on_event(const EventLoop::Event& event, Clock::time_point now) {
  const int fd = static_cast<int>(event.token);
  if (acceptor_->owns(event.token)) {
    auto admitted = acceptor_->on_event(event.token, now);
    if (admitted) {
      const int new_fd = admitted->socket.fd.get();
      if (loop_.add(new_fd, EPOLLIN, static_cast<std::uint64_t>(new_fd)).ok()) {
        clients_.insert_or_assign(new_fd, Client(next_id_++, std::move(*admitted)));
      }
    }
    return;
  }
  if (fd == bell_.fd()) {
    bell_.drain();
    return;
  }
  const auto found = clients_.find(fd);
  if (found == clients_.end()) {
    return;  // a client dropped by an earlier event of this batch
  }
  if ((event.events & EPOLLOUT) != 0) {
    flush(found->second);
  } else {
    on_readable(found->second, now);
  }
}

void Service::on_readable(Client& client, Clock::time_point now) {
  std::array<std::byte, 16384> bytes;
  const ssize_t n_read = recv(client.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n_read < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n_read <= 0) {
    drop(client);
    return;
  }
  client.messages.receive(std::span(bytes).first(static_cast<std::size_t>(n_read)));
  for (;;) {
    auto request = next_request(client);
    if (request.ok() && !request.value()) return;
    if (!request.ok()) {
      deliver({{client.id, std::make_shared<const std::vector<std::byte>>(encode_error(request.status()))}});
      drop(client);
      return;
    }
    const ConnectionId id = client.id;
    const int fd = client.socket.get();
    deliver(exchanges_.exchange(id, client.address.to_string(), std::move(*request.value()), now));
    const auto still = clients_.find(fd);
    if (still == clients_.end() || still->second.id != id) return;
  }
}

void Service::deliver(const std::vector<StoreReply>& replies) {
  for (const StoreReply& reply : replies) {
    const auto client = std::find_if(clients_.begin(), clients_.end(),
                                     [&reply](const auto& each) { return each.second.id == reply.to; });
    if (client != clients_.end()) {
      const auto sealed = client->second.messages.seal(*reply.message);
      client->second.outgoing.insert(client->second.outgoing.end(), sealed.begin(), sealed.end());
      flush(client->second);
    }
  }
}

void Service::flush(Client& client) {
  const int fd = client.socket.get();
  while (client.n_sent < client.outgoing.size()) {
    const auto rest = std::span(client.outgoing).subspan(client.n_sent);
    const ssize_t n = send(fd, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      // Full: continues when there is room. Broken: the next read reports it.
      loop_.change(fd, errno == EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN, static_cast<std::uint64_t>(fd));
      return;
    }
    client.n_sent += static_cast<std::size_t>(n);
  }
  client.outgoing.clear();
  client.n_sent = 0;
  loop_.change(fd, EPOLLIN, static_cast<std::uint64_t>(fd));
}

void Service::drop(Client& client) {
  const ConnectionId id = client.id;
  const int fd = client.socket.get();
  loop_.remove(fd);
  close_gracefully(std::move(client.socket));
  clients_.erase(fd);
  deliver(exchanges_.on_disconnect(id));
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(const StoreServerOptions& options) {
  auto service = Service::create(options);
  if (!service.ok()) return service.status();
  return std::unique_ptr<StoreServer>(std::move(service).value());
}

}  // namespace ciranda
