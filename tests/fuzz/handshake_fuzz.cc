// Bytes of a stranger to both sides of the handshake, in pieces of any size: whatever comes, neither reads beyond its
// bound or accepts (no input can contain the proof of a secret).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "membership/handshake.hpp"

namespace {

using ciranda::Handshake;

ciranda::Credentials credentials() {
  ciranda::Credentials result;
  result.secret.fill(std::byte{0x21});
  result.job = "job";
  result.epoch = 1;
  return result;
}

void feed(Handshake& handshake, std::span<const std::byte> bytes, std::size_t step) {
  std::size_t n_sent = handshake.take_output().size();
  std::size_t n_read = 0;
  while (!bytes.empty() && handshake.wants() > 0) {
    const std::size_t n = std::min({step, handshake.wants(), bytes.size()});
    handshake.receive(bytes.first(n));
    bytes = bytes.subspan(n);
    n_read += n;
    n_sent += handshake.take_output().size();
  }
  const bool within_bounds = n_read <= Handshake::kMostBytes && n_sent <= Handshake::kMostBytes;
  if (!within_bounds || handshake.verdict() == ciranda::Verdict::kAccepted) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  if (n_bytes == 0) {
    return 0;
  }
  const std::size_t step = 1 + data[0] % 128U;
  const auto bytes = std::as_bytes(std::span(data, n_bytes)).subspan(1);
  ciranda::AcceptingHandshake to_peer(credentials(), {false, 0, 4}, {});
  feed(to_peer, bytes, step);
  ciranda::AcceptingHandshake to_store(credentials(), {true, 0, 0}, {});
  feed(to_store, bytes, step);
  ciranda::ConnectingHandshake connecting(credentials(), {ciranda::Role::kControl, 1, 0, 4}, {});
  feed(connecting, bytes, step);
  return 0;
}
