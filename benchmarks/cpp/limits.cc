// What this machine can do at most, for the times of collectives to be held against.
//
//   limits [--seconds 0.2]
//
// Lines of JSON:
//   memory     how fast each of 1, 2, ... threads reads, copies and adds up, in GB/s of all, by the size of a buffer
//              (each thread has its own; copy counts 2 bytes, add 3, for each that it writes)
//   cache_line how long a line takes from one core to another, in ns, for each pair of cores
//   tcp        how long a byte takes over TCP to another thread of this machine, in us, and GB/s of large pieces: over
//              loopback, and over a pair of virtual interfaces (veth) between two network namespaces, which needs root
//              and the program ip; by the system's own congestion control, and by reno
//
// Each is the best of several tries: what disturbs a try makes it worse, never better.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
constexpr std::array<std::size_t, 7> kBufferBytes{16 << 10, 128 << 10, 512 << 10, 2 << 20,
                                                  8 << 20,  32 << 20,  128 << 20};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) std::fprintf(stderr, "limits: cannot stay on core %d\n", cpu);
}

// Runs `body` on a thread for each CPU, all at once.
void on_each(const std::vector<int>& cpus, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    threads.emplace_back([&, i] {
      stay_on(cpus[i]);
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// --- memory

struct Buffers {
  explicit Buffers(std::size_t n_bytes) : a(n_bytes / sizeof(float), 1), b(a.size(), 2), out(a.size(), 0) {}
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> out;
  float sum = 0;  // so that what was read is of use
};

// Several sums at once: one would wait for each addition.
void read_all(Buffers& buffers) {
  std::array<float, 32> sums{};
  for (std::size_t i = 0; i + sums.size() <= buffers.a.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += buffers.a[i + j];
  }
  for (const float sum : sums) buffers.sum += sum;
}
void copy_all(Buffers& buffers) { std::copy(buffers.a.begin(), buffers.a.end(), buffers.out.begin()); }
void add_all(Buffers& buffers) {
  std::transform(buffers.a.begin(), buffers.a.end(), buffers.b.begin(), buffers.out.begin(), std::plus<>());
}

struct Use {
  const char* name;
  void (*run)(Buffers&);
  std::size_t n_bytes_each;  // moved for each element
};
constexpr std::array kUses{Use{"read", read_all, sizeof(float)}, Use{"copy", copy_all, 2 * sizeof(float)},
                           Use{"add", add_all, 3 * sizeof(float)}};

// The compiler must neither leave out a pass nor merge two.
void is_used(Buffers& buffers) { asm volatile("" : : "r"(&buffers) : "memory"); }

double gb_per_s(const Use& use, std::size_t n_bytes, const std::vector<int>& cpus, double seconds) {
  std::barrier together(static_cast<std::ptrdiff_t>(cpus.size()));
  std::vector<double> best(cpus.size(), 0);
  on_each(cpus, [&](std::size_t i) {
    Buffers buffers(n_bytes);
    const auto bytes_of_pass = static_cast<double>(buffers.a.size() * use.n_bytes_each);
    for (int attempt = 0; attempt < kTries; ++attempt) {
      together.arrive_and_wait();
      const auto begin = Clock::now();
      double n_passes = 0;
      do {
        use.run(buffers);
        is_used(buffers);
        ++n_passes;
      } while (seconds_since(begin) < seconds / kTries);
      best[i] = std::max(best[i], n_passes * bytes_of_pass / seconds_since(begin) / 1e9);
    }
  });
  double all = 0;
  for (const double rate : best) all += rate;
  return all;
}

void print_memory(const std::vector<int>& cpus, double seconds) {
  for (std::size_t n_threads = 1; n_threads <= cpus.size(); n_threads *= 2) {
    const std::vector<int> used(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(n_threads));
    for (const std::size_t n_bytes : kBufferBytes) {
      std::printf("{\"limit\": \"memory\", \"threads\": %zu, \"bytes\": %zu", n_threads, n_bytes);
      for (const Use& use : kUses) {
        std::printf(", \"%s_gb_per_s\": %.2f", use.name, gb_per_s(use, n_bytes, used, seconds));
      }
      std::printf("}\n");
    }
  }
}

// --- a cache line

double one_way_ns(int first, int second, double seconds) {
  struct alignas(128) Line {
    std::atomic<std::uint64_t> turn{0};
  } line;
  constexpr std::uint64_t kTurns = 2000;
  std::atomic<bool> is_over{false};
  double best = 1e9;
  std::thread other([&] {
    stay_on(second);
    while (!is_over.load(std::memory_order_relaxed)) {
      const std::uint64_t turn = line.turn.load(std::memory_order_acquire);
      if (turn % 2 == 1) line.turn.store(turn + 1, std::memory_order_release);
    }
  });
  std::thread one([&] {
    stay_on(first);
    std::uint64_t turn = 0;
    const auto begin = Clock::now();
    do {
      const auto start = Clock::now();
      for (std::uint64_t i = 0; i < kTurns; ++i) {
        line.turn.store(++turn, std::memory_order_release);
        ++turn;
        while (line.turn.load(std::memory_order_acquire) != turn) {
        }
      }
      best = std::min(best, seconds_since(start) * 1e9 / (2 * kTurns));
    } while (seconds_since(begin) < seconds);
    is_over.store(true);
  });
  one.join();
  other.join();
  return best;
}

void print_cache_lines(const std::vector<int>& cpus, double seconds) {
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t j = i + 1; j < cpus.size(); ++j) {
      std::printf("{\"limit\": \"cache_line\", \"cores\": [%d, %d], \"one_way_ns\": %.1f}\n", cpus[i], cpus[j],
                  one_way_ns(cpus[i], cpus[j], seconds));
    }
  }
}

// --- tcp

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

// Seconds from the first byte of a piece sent to the last of the answer received; the least of several.
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

// `control`: of congestion; empty for the system's own. A namespace may not get every one.
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

// A socket belongs to the namespace that its thread was in when it was made: so the listener may be in another.
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

// Two namespaces of this thread's own, which go with it, and a veth between them.
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

void print_network(const std::vector<int>& cpus) {
  for (const char* control : {"", "reno"}) {
    print_loopback(control, cpus);
    if (geteuid() != 0) continue;
    std::thread apart([&] {  // so that this thread stays in the namespace that it is in
      try {
        print_veth(control, cpus);
      } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    });
    apart.join();
  }
}

double seconds_asked(int n_arguments, char** arguments) {
  if (n_arguments == 1) return 0.2;
  if (n_arguments != 3 || std::string(arguments[1]) != "--seconds") return 0;
  return std::strtod(arguments[2], nullptr);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  const double seconds = seconds_asked(n_arguments, arguments);
  if (!(seconds > 0)) {
    std::fprintf(stderr, "usage: limits [--seconds S]\n");
    return 2;
  }
  const std::vector<int> cpus = usable_cpus();
  print_memory(cpus, seconds);
  print_cache_lines(cpus, seconds);
  print_network(cpus);
  return 0;
}
