// Measures TCP between two threads (see limits.cc).
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "limits.hpp"

namespace limits {
namespace {

[[noreturn]] void fail(const char* what) { throw std::runtime_error(std::string("limits: ") + what + " failed"); }

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) fail("a socket");
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  void send_all(const std::vector<char>& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) fail("sending");
      sent += static_cast<std::size_t>(n);
    }
  }
  void receive_all(std::vector<char>& bytes) const {
    for (std::size_t received = 0; received < bytes.size();) {
      const ssize_t n = recv(fd_, bytes.data() + received, bytes.size() - received, 0);
      if (n <= 0) fail("receiving");
      received += static_cast<std::size_t>(n);
    }
  }

 private:
  int fd_;
};

// The least time, in seconds, from sending the first byte of a piece to receiving the last byte of the answer.
double round_trip(const Socket& here, const Socket& there, const std::vector<int>& cpus, std::size_t n_there,
                  std::size_t n_back, int n_trips) {
  double best = 1e9;
  std::thread answering([&] {
    stay_on(cpus.back());
    std::vector<char> question(n_there);
    const std::vector<char> answer(n_back);
    for (int i = 0; i < n_trips; ++i) {
      there.receive_all(question);
      there.send_all(answer);
    }
  });
  std::thread asking([&] {
    stay_on(cpus.front());
    const std::vector<char> question(n_there);
    std::vector<char> answer(n_back);
    for (int i = 0; i < n_trips; ++i) {
      const auto begin = Clock::now();
      here.send_all(question);
      here.receive_all(answer);
      best = std::min(best, seconds_since(begin));
    }
  });
  asking.join();
  answering.join();
  return best;
}

// `control`: the congestion control; empty for the system's default. Not every one is allowed in a namespace.
void set_control(const Socket& socket, const std::string& control) {
  if (control.empty()) return;
  const auto length = static_cast<socklen_t>(control.size());
  if (setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, control.data(), length) != 0) fail("TCP_CONGESTION");
}

Socket new_socket(const std::string& control) {
  Socket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_control(made, control);
  return made;
}

Socket listening_at(sockaddr_in& address, const std::string& control) {
  Socket listener = new_socket(control);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.fd(), any, length) != 0 || listen(listener.fd(), 1) != 0) fail("listening");
  if (getsockname(listener.fd(), any, &length) != 0) fail("getsockname");
  return listener;
}

sockaddr_in address_of(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1) fail("inet_pton");
  return address;
}

// A socket belongs to the network namespace of its thread at the time of its creation, so `listener` may be in another
// namespace.
void print_tcp(const char* way, const Socket& listener, sockaddr_in address, const std::string& control,
               const std::vector<int>& cpus) {
  const Socket here = new_socket(control);
  if (connect(here.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connecting");
  const Socket there(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  constexpr std::size_t kLarge = 16 << 20;
  const double small = round_trip(here, there, cpus, 1, 1, 5000);
  const double large = round_trip(here, there, cpus, kLarge, 1, 20);
  std::printf("{\"limit\": \"tcp\", \"way\": \"%s\", \"control\": \"%s\", \"one_way_us\": %.2f, \"gb_per_s\": %.2f}\n",
              way, control.empty() ? "the system's own" : control.c_str(), small * 1e6 / 2,
              static_cast<double>(kLarge) / (large - small / 2) / 1e9);
}

void print_loopback(const std::string& control, const std::vector<int>& cpus) {
  sockaddr_in address = address_of("127.0.0.1");
  const Socket listener = listening_at(address, control);
  print_tcp("loopback", listener, address, control, cpus);
}

// Two network namespaces of this thread, which end with the thread, and a veth between them.
class TwoNamespaces {
 public:
  TwoNamespaces() : first_(fresh()), second_(fresh()) {
    const std::string other = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(first_);
    run("ip link add limits0 type veth peer name limits0 netns " + other);
    set_up("10.93.1.2");
    enter_first();
    set_up("10.93.1.1");
  }
  ~TwoNamespaces() {
    close(first_);
    close(second_);
  }
  TwoNamespaces(const TwoNamespaces&) = delete;
  TwoNamespaces& operator=(const TwoNamespaces&) = delete;

  void enter_first() const { enter(first_); }
  void enter_second() const { enter(second_); }

 private:
  static int fresh() {
    if (unshare(CLONE_NEWNET) != 0) fail("unshare");
    const int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("opening the namespace");
    return fd;
  }
  static void enter(int space) {
    if (setns(space, CLONE_NEWNET) != 0) fail("setns");
  }
  static void run(const std::string& command) {
    if (std::system(command.c_str()) != 0) fail(command.c_str());  // NOLINT(cert-env33-c,concurrency-mt-unsafe)
  }
  static void set_up(const std::string& address) {
    run("ip address add " + address + "/24 dev limits0");
    run("ip link set limits0 up");
  }

  int first_;
  int second_;
};

void print_veth(const std::string& control, const std::vector<int>& cpus) {
  const TwoNamespaces spaces;
  spaces.enter_second();
  sockaddr_in address = address_of("10.93.1.2");
  const Socket listener = listening_at(address, control);
  spaces.enter_first();
  print_tcp("veth", listener, address, control, cpus);
}

}  // namespace

void print_network(const std::vector<int>& cpus) {
  for (const char* control : {"", "reno"}) {
    print_loopback(control, cpus);
    if (geteuid() != 0) continue;
    std::thread apart([&] {  // on another thread, as the calling thread must stay in its namespace
      try {
        print_veth(control, cpus);
      } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    });
    apart.join();
  }
}

}  // namespace limits
