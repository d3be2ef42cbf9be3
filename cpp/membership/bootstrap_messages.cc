#include "membership/bootstrap_messages.hpp"

#include "membership/wire.hpp"

namespace ciranda {
namespace {

enum class Kind : std::uint8_t { kEndpoint = 0x11, kOffer = 0x12, kAnswer = 0x13, kVerdict = 0x14, kCosts = 0x15 };

ByteWriter begin(Kind kind) {
  ByteWriter out;
  out.number(static_cast<std::uint8_t>(kind));
  return out;
}

bool is(ByteReader& in, Kind kind) { return in.number<std::uint8_t>() == static_cast<std::uint8_t>(kind); }

std::string_view shortened(const std::string& text) { return std::string_view(text).substr(0, kMostTextBytes); }

Status malformed(const char* what) {
  return Status::internal(std::string("sent a malformed ") + what + ": is the same Ciranda installed on all hosts?");
}

void write(ByteWriter& out, bool value) { out.number(static_cast<std::uint8_t>(value)); }
void write(ByteWriter& out, std::uint64_t value) { out.number(value); }
void write(ByteWriter& out, std::int64_t value) { out.number(static_cast<std::uint64_t>(value)); }
void write(ByteWriter& out, const std::string& value) { out.text(shortened(value)); }

void read(ByteReader& in, bool& value) { value = in.flag(); }
void read(ByteReader& in, std::uint64_t& value) { value = in.number<std::uint64_t>(); }
void read(ByteReader& in, std::int64_t& value) { value = static_cast<std::int64_t>(in.number<std::uint64_t>()); }
void read(ByteReader& in, std::string& value) { value = in.text(kMostTextBytes); }

void write_costs(ByteWriter& out, const std::optional<HostCosts>& costs) {
  out.number(static_cast<std::uint8_t>(costs.has_value()));
  if (!costs) return;
  for (const HostCost& each : kHostCosts) out.number((*costs).*each.value);
}

std::optional<HostCosts> read_costs(ByteReader& in) {
  if (!in.flag()) return std::nullopt;
  HostCosts costs;
  for (const HostCost& each : kHostCosts) costs.*each.value = in.number<std::uint64_t>();
  return costs;
}

bool are_usable(const std::optional<HostCosts>& costs) { return !costs || are_within_bounds(*costs); }

}  // namespace

std::vector<std::byte> encode(const Endpoint& endpoint) {
  ByteWriter out = begin(Kind::kEndpoint);
  out.number(endpoint.pid).number(endpoint.bell_fd);
  out.number(static_cast<std::uint8_t>(endpoint.tries_shared_memory)).number(endpoint.n_cores);
  for_each_common_setting([&](const char*, auto setting) { write(out, endpoint.*setting); });
  write_costs(out, endpoint.costs);
  out.text(shortened(endpoint.host)).text(shortened(endpoint.host_id));
  out.text(shortened(endpoint.machine)).number(static_cast<std::uint32_t>(endpoint.addresses.size()));
  for (const std::string& address : endpoint.addresses) out.text(shortened(address));
  return out.take();
}

Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const bool is_endpoint = is(in, Kind::kEndpoint);
  Endpoint endpoint;
  endpoint.pid = in.number<std::uint32_t>();
  endpoint.bell_fd = in.number<std::uint32_t>();
  endpoint.tries_shared_memory = in.flag();
  endpoint.n_cores = in.number<std::uint32_t>();
  for_each_common_setting([&](const char*, auto setting) { read(in, endpoint.*setting); });
  endpoint.costs = read_costs(in);
  endpoint.host = in.text(kMostTextBytes);
  endpoint.host_id = in.text(kMostTextBytes);
  endpoint.machine = in.text(kMostTextBytes);
  const auto n_addresses = in.number<std::uint32_t>();
  const bool is_count_usable = n_addresses > 0 && n_addresses <= kMostAddresses;
  for (std::uint32_t i = 0; is_count_usable && i < n_addresses; ++i) {
    endpoint.addresses.push_back(in.text(kMostTextBytes));
  }
  if (!is_endpoint || !in.complete() || !are_usable(endpoint.costs) || !is_count_usable) {
    return malformed("description of itself");
  }
  return endpoint;
}

std::vector<std::byte> encode(const std::optional<HostCosts>& costs) {
  ByteWriter out = begin(Kind::kCosts);
  write_costs(out, costs);
  return out.take();
}

Result<std::optional<HostCosts>> decode_costs(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const bool are_costs = is(in, Kind::kCosts);
  const std::optional<HostCosts> costs = read_costs(in);
  if (!are_costs || !in.complete() || !are_usable(costs)) return malformed("message of its costs");
  return costs;
}

std::vector<std::byte> encode_frame(const ProbeOffer& offer) {
  ByteWriter out = begin(Kind::kOffer);
  out.text(offer.path).number(offer.n_bytes).raw(offer.nonce).text(shortened(offer.reason));
  return out.take_frame();
}

std::vector<std::byte> encode_frame(const ProbeAnswer& answer) {
  ByteWriter out = begin(Kind::kAnswer);
  out.number(static_cast<std::uint8_t>(answer.ok)).raw(answer.nonce).text(shortened(answer.reason));
  return out.take_frame();
}

std::vector<std::byte> encode_frame(const ProbeVerdict& verdict) {
  ByteWriter out = begin(Kind::kVerdict);
  out.number(static_cast<std::uint32_t>(verdict.ranks.size()));
  for (const std::uint32_t rank : verdict.ranks) out.number(rank);
  out.text(shortened(verdict.failure));
  return out.take_frame();
}

Result<ProbeOffer> decode_offer(std::span<const std::byte> body) {
  ByteReader in(body);
  const bool is_offer = is(in, Kind::kOffer);
  ProbeOffer offer;
  offer.path = in.text(kMostTextBytes);
  offer.n_bytes = in.number<std::uint64_t>();
  in.array(offer.nonce);
  offer.reason = in.text(kMostTextBytes);
  if (!is_offer || !in.complete() || offer.path.find('\0') != std::string::npos) {
    return malformed("offer of shared memory");
  }
  return offer;
}

Result<ProbeAnswer> decode_answer(std::span<const std::byte> body) {
  ByteReader in(body);
  const bool is_answer = is(in, Kind::kAnswer);
  ProbeAnswer answer;
  answer.ok = in.flag();
  in.array(answer.nonce);
  answer.reason = in.text(kMostTextBytes);
  if (!is_answer || !in.complete()) return malformed("answer about shared memory");
  return answer;
}

Result<ProbeVerdict> decode_verdict(std::span<const std::byte> body) {
  ByteReader in(body);
  const bool is_verdict = is(in, Kind::kVerdict);
  const auto count = in.number<std::uint32_t>();
  ProbeVerdict verdict;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) verdict.ranks.push_back(in.number<std::uint32_t>());
  verdict.failure = in.text(kMostTextBytes);
  if (!is_verdict || !in.complete()) return malformed("verdict about shared memory");
  return verdict;
}

}  // namespace ciranda
