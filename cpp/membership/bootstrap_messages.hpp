// What ranks tell each other while a world forms: where each is to be found and what it has measured (through the
// store), and the trial of shared memory (over authenticated control connections).
//
// Threads: plain values. Failure: decoding trusts nothing; Internal for what is not exactly one well-formed message.
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

// One rank, as the others must know it.
struct Endpoint : CommonSettings {
  std::uint32_t pid = 0;
  std::uint32_t bell_fd = 0;
  bool tries_shared_memory = false;
  std::uint32_t n_cores = 0;
  std::optional<HostCosts> costs;
  std::string host;                    // for messages
  std::string host_id;                 // HostIdentity::shared_memory, or what the user says instead
  std::string machine;                 // HostIdentity::machine
  std::vector<std::string> addresses;  // where it listens; one at least
};

std::vector<std::byte> encode(const Endpoint& endpoint);  // no frame: a blob of the store
Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes);

// What a rank has measured, if it has; no frame either.
std::vector<std::byte> encode(const std::optional<HostCosts>& costs);
Result<std::optional<HostCosts>> decode_costs(std::span<const std::byte> bytes);

// The leader to the other members: open this, you must find the nonce in it. Or an empty path, and why.
struct ProbeOffer {
  std::string path;
  std::uint64_t n_bytes = 0;
  Nonce nonce{};
  std::string reason;
};

// A member to the leader: you must find this nonce in my place. Or it failed, and why.
struct ProbeAnswer {
  bool ok = false;
  Nonce nonce{};
  std::string reason;
};

// The leader to the other members: those who share the memory; or why the leader gives up joining (a member was lost,
// which the others need not notice by themselves).
struct ProbeVerdict {
  std::vector<std::uint32_t> ranks;
  std::string failure;
};

// Frames, for a stream; decoding takes the body.
std::vector<std::byte> encode_frame(const ProbeOffer& offer);
std::vector<std::byte> encode_frame(const ProbeAnswer& answer);
std::vector<std::byte> encode_frame(const ProbeVerdict& verdict);
Result<ProbeOffer> decode_offer(std::span<const std::byte> body);
Result<ProbeAnswer> decode_answer(std::span<const std::byte> body);
Result<ProbeVerdict> decode_verdict(std::span<const std::byte> body);

}  // namespace ciranda
