// The messages of ranks while a world forms: each rank's addresses and measurements (through the store), and the probe
// of shared memory (over authenticated control connections).
//
// Called by join_world() and probe_shared_memory(); plain values. Failure: decoding trusts no input; Internal unless
// the bytes are exactly one valid message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/host_costs.hpp"
#include "base/status.hpp"
#include "membership/common_settings.hpp"
#include "membership/handshake.hpp"

namespace ciranda {

inline constexpr std::size_t kMostTextBytes = 1024;
inline constexpr std::size_t kMostAddresses = 16;
inline constexpr std::size_t kMostProbeBytes = 64 << 10;

// The data of one rank that all others need.
struct Endpoint : CommonSettings {
  std::uint32_t pid = 0;
  std::uint32_t bell_fd = 0;
  bool tries_shared_memory = false;
  std::uint32_t n_cores = 0;
  bool has_fast_aes = false;
  std::optional<HostCosts> costs;
  std::string host;                    // for messages
  std::string host_id;                 // HostIdentity::shared_memory, unless the user sets another
  std::string machine;                 // HostIdentity::machine
  std::vector<std::string> addresses;  // on which it listens; at least one
};

std::vector<std::byte> encode(const Endpoint& endpoint);  // a blob of the store
Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes);

// A rank's measured costs, if it has any; a blob too.
std::vector<std::byte> encode(const std::optional<HostCosts>& costs);
Result<std::optional<HostCosts>> decode_costs(std::span<const std::byte> bytes);

// Each message of the probe may instead say in `failure` that a rank gives up joining, and why: a member was lost,
// which the others may not detect.

// From the leader to the other members: the segment to open, and the nonce that it contains. Or an empty path, and the
// reason.
struct ProbeOffer {
  std::string path;
  std::uint64_t n_bytes = 0;
  Nonce nonce{};
  std::string reason;
  std::string failure;
};

// From a member to the leader: the nonce that it has written to its probe line. Or `ok` is false, and the reason. And
// whether it can do with few connections to the others.
struct ProbeAnswer {
  std::uint32_t rank = 0;  // that answers
  bool ok = false;
  Nonce nonce{};
  std::string reason;
  bool needs_few_sockets = false;
  std::string failure;
};

// From the leader to the other members: the ranks that share the memory, and whether they do with few connections among
// themselves.
struct ProbeVerdict {
  std::vector<std::uint32_t> ranks;
  bool need_few_sockets = false;
  std::string failure;
};

std::vector<std::byte> encode(const ProbeOffer& offer);
std::vector<std::byte> encode(const ProbeAnswer& answer);
std::vector<std::byte> encode(const ProbeVerdict& verdict);
Result<ProbeOffer> decode_offer(std::span<const std::byte> bytes);
Result<ProbeAnswer> decode_answer(std::span<const std::byte> bytes);
Result<ProbeVerdict> decode_verdict(std::span<const std::byte> bytes);

}  // namespace ciranda
