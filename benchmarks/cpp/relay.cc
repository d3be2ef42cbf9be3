// A wire between two network namespaces that delays and loses packets: a replacement for netem, if the kernel lacks it.
//
//   relay PID PID [--name wire] [--delay-us 0] [--loss 0] [--seed 1]
//
// Makes an interface with this name (a TUN device) in the network namespaces of both processes, and prints "ready".
// Then it carries packets between the two interfaces. It delivers each packet --delay-us after it was sent, and drops
// the share --loss of them. The caller gives the interfaces their addresses and a rate (tbf). It may cut the wire by
// stopping the relay (SIGSTOP): packets then stay undelivered, without an error. The interfaces end with the relay.
// Needs root.
//
// Without loss, packets are not cut to the interface's size (64 KiB at once, as network cards take them), so the rate
// is some Gbit/s. With loss, packets are cut, and each is lost independently.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeaderBytes = 10;  // of virtio_net_hdr, whose header file is only valid in C
constexpr std::size_t kMostBytes = 65536 + kHeaderBytes;
constexpr int kMostAtOnce = 64;  // packets read before due packets are sent

struct Options {
  std::string name = "wire";
  Clock::duration delay{};
  double loss = 0;
  unsigned seed = 1;
};

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void require(bool is_fine, const std::string& what) {
  if (!is_fine) fail(what);
}

int tun_of(const std::string& process, const Options& options) {
  const int space = open(("/proc/" + process + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
  require(space >= 0 && setns(space, CLONE_NEWNET) == 0, "cannot enter the network of process " + process);
  close(space);
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  require(fd >= 0, "cannot open /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, options.name.c_str(), IFNAMSIZ - 1);
  require(ioctl(fd, TUNSETIFF, &request) == 0, "cannot make the interface " + options.name);
  const unsigned long whole = options.loss > 0 ? 0 : TUN_F_TSO4 | TUN_F_TSO6;
  require(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | whole) == 0, "cannot set up the interface " + options.name);
  return fd;
}

// One of the two directions of the wire.
class Way {
 public:
  Way(int from, int to, const Options& options, unsigned seed)
      : from_(from), to_(to), delay_(options.delay), random_(seed), is_lost_(options.loss) {}

  void take_in() {
    for (int i = 0; i < kMostAtOnce; ++i) {
      if (spare_.empty()) spare_.emplace_back(kMostBytes);
      const ssize_t n = read(from_, spare_.back().data(), kMostBytes);
      if (n <= 0) return;
      if (is_lost_(random_)) continue;
      waiting_.push_back({Clock::now() + delay_, static_cast<std::size_t>(n), std::move(spare_.back())});
      spare_.pop_back();
    }
  }

  // Sends the packets that are due. Returns the time at which the next one is due.
  std::optional<Clock::time_point> send_due() {
    while (!waiting_.empty()) {
      Packet& first = waiting_.front();
      if (first.due > Clock::now()) return first.due;
      (void)!write(to_, first.bytes.data(), first.n_bytes);  // a packet that is refused is lost, as on any wire
      spare_.push_back(std::move(first.bytes));
      waiting_.pop_front();
    }
    return std::nullopt;
  }

 private:
  struct Packet {
    Clock::time_point due;
    std::size_t n_bytes;
    std::vector<std::byte> bytes;
  };

  int from_;
  int to_;
  Clock::duration delay_;
  std::mt19937 random_;
  std::bernoulli_distribution is_lost_;
  std::deque<Packet> waiting_;
  std::vector<std::vector<std::byte>> spare_;
};

[[noreturn]] void carry(int one, int other, const Options& options) {
  std::array ways{Way(one, other, options, options.seed), Way(other, one, options, options.seed + 1)};
  std::array<pollfd, 2> watched{{{one, POLLIN, 0}, {other, POLLIN, 0}}};
  for (;;) {
    std::optional<Clock::time_point> next;
    for (Way& way : ways) {
      way.take_in();
      const auto due = way.send_due();
      if (due && (!next || *due < *next)) next = due;
    }
    timespec wait{};
    if (next) {
      const auto left = std::chrono::nanoseconds(std::max(*next - Clock::now(), Clock::duration::zero())).count();
      wait = {left / 1'000'000'000, left % 1'000'000'000};
    }
    require(ppoll(watched.data(), watched.size(), next ? &wait : nullptr, nullptr) >= 0 || errno == EINTR,
            "cannot wait for packets");
  }
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.size() % 2 != 0) throw std::invalid_argument("two processes, then options in pairs");
  Options options;
  for (std::size_t i = 2; i < words.size(); i += 2) {
    const std::string& value = words[i + 1];
    if (words[i] == "--name") {
      options.name = value;
    } else if (words[i] == "--delay-us") {
      options.delay = std::chrono::microseconds(std::stol(value));
    } else if (words[i] == "--loss") {
      options.loss = std::stod(value);
    } else if (words[i] == "--seed") {
      options.seed = static_cast<unsigned>(std::stoul(value));
    } else {
      throw std::invalid_argument("there is no option " + words[i]);
    }
  }
  prctl(PR_SET_TIMERSLACK, 1);  // one nanosecond, to wake exactly when a packet is due
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int one = tun_of(words[0], options);
  const int other = tun_of(words[1], options);
  std::puts("ready");
  std::fflush(stdout);
  carry(one, other, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "relay: %s\n", error.what());
  }
  return 1;
}
