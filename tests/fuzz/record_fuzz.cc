// What may arrive on the connections between two ranks: any bytes, on one connection or two, in pieces of any size,
// at each level of the wire. A channel delivers no more than has arrived, and nothing once it has
// failed.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "transport/record_channel.hpp"

namespace {

using ciranda::RecordChannel;

class Connection {
 public:
  Connection() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
    near_ = ciranda::UniqueFd(ends[0]);
    far_ = ciranda::UniqueFd(ends[1]);
  }
  ciranda::KeyedSocket take_near() { return {std::move(near_), {}}; }
  void send_some(std::span<const std::byte> bytes) { (void)send(far_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT); }

 private:
  ciranda::UniqueFd near_;
  ciranda::UniqueFd far_;
};

void feed(std::span<const std::byte> bytes, std::size_t n_connections, std::size_t step, ciranda::WireLevel level) {
  std::vector<Connection> connections(n_connections);
  std::vector<ciranda::KeyedSocket> sockets;
  for (Connection& each : connections) sockets.push_back(each.take_near());
  std::size_t n_failures = 0;
  RecordChannel channel(std::move(sockets), {level, {}}, [&n_failures] { ++n_failures; });
  std::array<std::byte, 300> room{};
  std::size_t n_fed = 0;
  std::size_t n_read = 0;
  for (std::size_t piece = 0; !bytes.empty(); ++piece) {
    const std::size_t n = std::min(step, bytes.size());
    connections[piece % n_connections].send_some(bytes.first(n));
    bytes = bytes.subspan(n);
    n_fed += n;
    channel.look_again();
    const bool had_failed = channel.failure().has_value();
    const std::size_t n_now = channel.read_some(room);
    n_read += n_now;
    if (n_read > n_fed || (had_failed && n_now > 0) || n_failures != (channel.failure() ? 1U : 0U)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  if (n_bytes == 0) return 0;
  const std::size_t step = 1 + data[0] % 128U;
  const std::size_t n_connections = 1 + data[0] / 128U;
  const auto bytes = std::as_bytes(std::span(data, n_bytes)).subspan(1);
  feed(bytes, n_connections, step, ciranda::WireLevel::kAuthenticate);
  feed(bytes, n_connections, step, ciranda::WireLevel::kEncrypt);
  feed(bytes, n_connections, step, ciranda::WireLevel::kCheck);
  feed(bytes, n_connections, step, ciranda::WireLevel::kNone);
  return 0;
}
