#include "membership/bootstrap_messages.hpp"

#include "base/codec.hpp"

namespace ciranda {

void code(auto& io, Is<HostCosts> auto& m) {
  for (const HostCost& each : kHostCosts) io(m.*each.value);
  io.require(are_within_bounds(m));
}
void code(auto& io, Is<Endpoint> auto& m) {
  io(m.pid, m.bell_fd, m.tries_shared_memory, m.n_cores, m.has_fast_aes);
  for_each_common_setting([&](const char*, auto setting) { io(m.*setting); });
  io(m.costs, m.host, m.host_id, m.machine, m.addresses);
  io.require(!m.addresses.empty() && m.addresses.size() <= kMostAddresses);
}
void code(auto& io, Is<ProbeOffer> auto& m) {
  io.whole(m.path);
  io.require(m.path.size() <= kMostTextBytes && m.path.find('\0') == std::string::npos);
  io(m.n_bytes, m.nonce, m.reason, m.failure);
}
void code(auto& io, Is<ProbeAnswer> auto& m) { io(m.rank, m.ok, m.nonce, m.reason, m.needs_few_sockets, m.failure); }
void code(auto& io, Is<ProbeVerdict> auto& m) { io(m.ranks, m.need_few_sockets, m.failure); }

namespace {

enum class Kind : std::uint8_t { kEndpoint = 0x11, kOffer = 0x12, kAnswer = 0x13, kVerdict = 0x14, kCosts = 0x15 };

template <typename Message>
std::vector<std::byte> encoded(Kind kind, const Message& message) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes, kMostTextBytes)(kind, message);
  return bytes;
}

template <typename Message>
Result<Message> decoded(Kind kind, std::span<const std::byte> bytes, const char* what) {
  ByteReader in(bytes, kMostTextBytes);
  std::uint8_t found = 0;
  Message message;
  in(found, message);
  if (in.is_complete() && found == static_cast<std::uint8_t>(kind)) return message;
  return Status::internal(std::string("sent a malformed ") + what + ": is the same Ciranda installed on all hosts?");
}

}  // namespace

std::vector<std::byte> encode(const Endpoint& endpoint) { return encoded(Kind::kEndpoint, endpoint); }
std::vector<std::byte> encode(const std::optional<HostCosts>& costs) { return encoded(Kind::kCosts, costs); }
std::vector<std::byte> encode(const ProbeOffer& offer) { return encoded(Kind::kOffer, offer); }
std::vector<std::byte> encode(const ProbeAnswer& answer) { return encoded(Kind::kAnswer, answer); }
std::vector<std::byte> encode(const ProbeVerdict& verdict) { return encoded(Kind::kVerdict, verdict); }

Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes) {
  return decoded<Endpoint>(Kind::kEndpoint, bytes, "description of itself");
}
Result<std::optional<HostCosts>> decode_costs(std::span<const std::byte> bytes) {
  return decoded<std::optional<HostCosts>>(Kind::kCosts, bytes, "message of its costs");
}
Result<ProbeOffer> decode_offer(std::span<const std::byte> bytes) {
  return decoded<ProbeOffer>(Kind::kOffer, bytes, "offer of shared memory");
}
Result<ProbeAnswer> decode_answer(std::span<const std::byte> bytes) {
  return decoded<ProbeAnswer>(Kind::kAnswer, bytes, "answer about shared memory");
}
Result<ProbeVerdict> decode_verdict(std::span<const std::byte> bytes) {
  return decoded<ProbeVerdict>(Kind::kVerdict, bytes, "verdict about shared memory");
}

}  // namespace ciranda
