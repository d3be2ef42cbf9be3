// Handshake: two processes prove to each other that they have the job's secret, before they exchange anything else.
//
//   connecting side                                            accepting side
//     hello: version, role, job, epoch, ranks, nonce   ->
//                                                      <-   challenge: nonce, HMAC("accepting" | hello | nonces)
//     proof: HMAC("connecting" | hello | nonces)       ->
//                                                      <-   admission: one byte
//
// Messages have fixed lengths (at most kMostBytes each way in all), so no allocation depends on an unauthenticated
// peer. If the secrets differ, both sides learn it. The HMACs cover epoch, ranks and role, so a recorded or redirected
// exchange proves nothing elsewhere. Both sides derive from the secret, by HKDF over the hello and both nonces, a key
// for each direction of this connection.
//
// Both sides are pure state machines: bytes in, bytes out, a verdict. Never read more than wants() bytes for them:
// later bytes belong to the next user of the connection. The caller enforces deadlines. Called by Acceptor
// (the accepting side) and OutgoingConnection (the connecting side); StoreServer, bootstrap_messages.hpp and, through
// these, PairConnector, StoreClient, join_world() and probe_shared_memory() use values of it: credentials, roles,
// nonces, limits. Failure: verdict() kRefused. The reason continues a sentence that begins with the peer's name
// ("presented a different job secret").
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "crypto/digest.hpp"
#include "membership/secret.hpp"
#include "transport/keyed_socket.hpp"

namespace ciranda {

inline constexpr std::uint16_t kProtocolVersion = 8;

// The time in which a peer must authenticate. The reader of the connection enforces it.
inline constexpr std::chrono::milliseconds kHandshakeLimit{5000};

// The purpose of a connection.
enum class Role : std::uint8_t { kStore = 1, kControl = 2, kData = 3 };

// The values that both ends must have in common.
struct Credentials {
  Secret secret{};
  std::string job;
  std::uint64_t epoch = 0;  // 0 for the store, which outlives epochs
};

struct Purpose {
  Role role = Role::kStore;
  std::uint32_t from = 0;
  std::uint32_t to = 0;    // 0 for the store
  std::uint32_t size = 0;  // of the job; 0 for the store
  std::uint8_t index = 0;  // among the connections of this role between the two
};

enum class Verdict : std::uint8_t { kPending, kAccepted, kRefused };

using Nonce = std::array<std::byte, 32>;

class Handshake {
 public:
  static constexpr std::size_t kMagicBytes = 8;
  static constexpr std::size_t kHelloBytes = 80;
  static constexpr std::size_t kChallengeBytes = 80;
  static constexpr std::size_t kProofBytes = sizeof(Digest);
  static constexpr std::size_t kMostBytes = 128;
  static_assert(kHelloBytes + kProofBytes <= kMostBytes && kChallengeBytes + 1 <= kMostBytes);

  virtual ~Handshake() = default;

  // The number of bytes that may be read from the connection now.
  std::size_t wants() const { return verdict_ == Verdict::kPending ? expected_ - received_.size() : 0; }
  // REQUIRES: at most wants() bytes.
  void receive(std::span<const std::byte> bytes);
  // Bytes to send now, also after a refusal; each byte is returned once.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }

  Verdict verdict() const { return verdict_; }
  const std::string& reason() const { return reason_; }
  // REQUIRES: verdict() is kAccepted.
  virtual ConnectionKeys keys() const = 0;

 protected:
  Handshake(Credentials credentials, std::size_t expected)
      : credentials_(std::move(credentials)), expected_(expected) {}

  virtual void on_message(std::span<const std::byte> message) = 0;
  // Checks the beginning of the first message, as soon as it has arrived.
  void check_magic();
  void expect(std::size_t n_bytes) { expected_ = n_bytes; }
  void send(std::span<const std::byte> bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }
  void accept() { verdict_ = Verdict::kAccepted; }
  void refuse(std::string reason);
  Digest proof_of(bool connecting_side) const;
  // The key for what that side sends.
  Aead::Key key_of(bool connecting_side) const;

  Credentials credentials_;
  std::vector<std::byte> hello_;
  Nonce nonce_{};  // of the accepting side; the hello has the other

 private:
  std::size_t expected_;
  std::vector<std::byte> received_;
  std::vector<std::byte> output_;
  bool magic_seen_ = false;
  Verdict verdict_ = Verdict::kPending;
  std::string reason_;
};

class ConnectingHandshake final : public Handshake {
 public:
  ConnectingHandshake(Credentials credentials, const Purpose& purpose, const Nonce& nonce);

  ConnectionKeys keys() const override { return {key_of(true), key_of(false)}; }
  // REQUIRES: verdict() is kRefused. Whether another try would be refused, too.
  bool lasts() const { return lasts_; }

 private:
  void on_message(std::span<const std::byte> message) override;

  bool proved_ = false;
  bool lasts_ = true;
};

class AcceptingHandshake final : public Handshake {
 public:
  // The hellos to accept: `rank` and `size` are this rank's own. Both are 0 for the store, which accepts only kStore.
  struct Expectation {
    bool is_store = false;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
  };

  AcceptingHandshake(Credentials credentials, const Expectation& expectation, const Nonce& nonce);

  // What a process that may open no more files says, before it hears anything, as it ends the connection.
  static std::vector<std::byte> has_no_room();

  // The other side knows what the job and this rank are called.
  bool knows_job() const { return !hello_.empty(); }
  // REQUIRES: verdict() is kAccepted.
  const Purpose& purpose() const { return purpose_; }
  ConnectionKeys keys() const override { return {key_of(false), key_of(true)}; }

 private:
  void on_message(std::span<const std::byte> message) override;
  void on_hello(std::span<const std::byte> hello);
  void on_proof(std::span<const std::byte> proof);

  Expectation expectation_;
  Purpose purpose_;
};

}  // namespace ciranda
