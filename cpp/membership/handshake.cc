#include "membership/handshake.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/codec.hpp"
#include "crypto/hkdf.hpp"

namespace ciranda {
namespace {

constexpr std::string_view kMagic = "CIRANDA\x01";
static_assert(kMagic.size() == Handshake::kMagicBytes);
constexpr std::byte kAdmitted{0x06};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// The reason why an accepting side sends no challenge.
enum class Refusal : std::uint8_t { kNone, kVersion, kJob, kEpoch, kDestination, kSize, kNoRoom, kLast = kNoRoom };

// Continues a sentence that begins with the other side's name.
std::string explain(Refusal refusal, bool we_accept) {
  switch (refusal) {
    case Refusal::kVersion: return "speaks another version of the protocol: install the same Ciranda on all hosts";
    case Refusal::kJob: return "belongs to another job";
    case Refusal::kEpoch: return "is in another epoch: every rank must call init() and shutdown() equally often";
    case Refusal::kDestination:
      return we_accept ? "looked for another rank or service" : "is another rank or service than was looked for";
    case Refusal::kSize: return "was started with another number of ranks";
    case Refusal::kNoRoom: return "may open no more files: raise the limit of that process (ulimit -n)";
    case Refusal::kNone: break;
  }
  return "refused for an unknown reason";
}

// The job's identifier in a fixed number of bytes.
std::span<const std::byte> short_job(const Digest& digest) { return std::span(digest).first(16); }

struct Hello {
  std::uint16_t version = 0;
  std::uint8_t role = 0;
  std::uint64_t epoch = 0;
  Purpose purpose;
  std::array<std::byte, 16> job{};
};

std::vector<std::byte> encode_hello(const Credentials& credentials, const Purpose& purpose, const Nonce& nonce) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.raw(bytes_of(kMagic));
  out(kProtocolVersion, purpose.role, purpose.index, credentials.epoch, purpose.from, purpose.to, purpose.size);
  out.raw(short_job(sha256({bytes_of(credentials.job)})));
  out.raw(nonce);
  return bytes;
}

Hello decode_hello(std::span<const std::byte> bytes) {
  ByteReader in(bytes.subspan(kMagic.size()));
  Hello hello;
  Purpose& purpose = hello.purpose;
  in(hello.version, hello.role, purpose.index, hello.epoch, purpose.from, purpose.to, purpose.size, hello.job);
  purpose.role = static_cast<Role>(hello.role);
  return hello;
}

// A challenge; if `refusal` is set, all else is empty.
std::vector<std::byte> encode_challenge(Refusal refusal, const Nonce& nonce, const Digest& proof) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.raw(bytes_of(kMagic));
  out(static_cast<std::uint64_t>(refusal), nonce, proof);
  return bytes;
}

Refusal judge(const Hello& hello, const Credentials& credentials, const AcceptingHandshake::Expectation& expectation) {
  if (hello.version != kProtocolVersion) return Refusal::kVersion;
  const Digest job = sha256({bytes_of(credentials.job)});
  if (!std::equal(hello.job.begin(), hello.job.end(), job.begin())) return Refusal::kJob;
  const Purpose& purpose = hello.purpose;
  const bool to_store = hello.role == static_cast<std::uint8_t>(Role::kStore);
  const bool to_peer =
      hello.role == static_cast<std::uint8_t>(Role::kControl) || hello.role == static_cast<std::uint8_t>(Role::kData);
  if (expectation.is_store ? !to_store : !to_peer || purpose.to != expectation.rank) return Refusal::kDestination;
  if (hello.epoch != credentials.epoch) return Refusal::kEpoch;
  if (!expectation.is_store && (purpose.size != expectation.size || purpose.from >= expectation.size)) {
    return Refusal::kSize;
  }
  return Refusal::kNone;
}

}  // namespace

void Handshake::receive(std::span<const std::byte> bytes) {
  if (verdict_ != Verdict::kPending) return;
  received_.insert(received_.end(), bytes.begin(), bytes.end());
  if (!magic_seen_) check_magic();
  if (verdict_ == Verdict::kPending && received_.size() >= expected_) {
    const auto message = std::exchange(received_, {});
    on_message(message);
  }
}

void Handshake::check_magic() {
  const std::size_t n = std::min(received_.size(), kMagic.size());
  if (!std::equal(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(n), bytes_of(kMagic).begin())) {
    refuse("does not speak Ciranda's protocol");
    return;
  }
  magic_seen_ = n == kMagic.size();
}

void Handshake::refuse(std::string reason) {
  verdict_ = Verdict::kRefused;
  reason_ = std::move(reason);
}

Digest Handshake::proof_of(bool connecting_side) const {
  const std::string_view label = connecting_side ? "ciranda connecting" : "ciranda accepting";
  return hmac_sha256(credentials_.secret, {bytes_of(label), hello_, nonce_});
}

Aead::Key Handshake::key_of(bool connecting_side) const {
  std::vector<std::byte> info;
  ByteWriter out(info);
  out.raw(bytes_of(connecting_side ? "ciranda key of the connecting side" : "ciranda key of the accepting side"));
  out.raw(hello_);
  Aead::Key key{};
  hkdf_sha256(key, credentials_.secret, nonce_, info);
  return key;
}

ConnectingHandshake::ConnectingHandshake(Credentials credentials, const Purpose& purpose, const Nonce& nonce)
    : Handshake(std::move(credentials), kChallengeBytes) {
  hello_ = encode_hello(credentials_, purpose, nonce);
  send(hello_);
}

void ConnectingHandshake::on_message(std::span<const std::byte> message) {
  if (proved_) {
    message[0] == kAdmitted ? accept() : refuse("answered with something that is not the protocol's");
    return;
  }
  ByteReader in(message.subspan(kMagic.size()));
  std::uint64_t refusal = 0;
  Digest proof{};
  in(refusal, nonce_, proof);
  if (refusal != 0) {
    const bool known = refusal <= static_cast<std::uint64_t>(Refusal::kLast);
    lasts_ = refusal != static_cast<std::uint64_t>(Refusal::kNoRoom);
    refuse(explain(known ? static_cast<Refusal>(refusal) : Refusal::kNone, false));
    return;
  }
  // Sends this side's proof even if the other's is wrong, so that the other side also learns of the mismatch. The proof
  // reveals nothing about the secret.
  send(proof_of(true));
  if (!equal_in_constant_time(proof, proof_of(false))) {
    refuse("presented a different job secret");
    return;
  }
  proved_ = true;
  expect(1);
}

AcceptingHandshake::AcceptingHandshake(Credentials credentials, const Expectation& expectation, const Nonce& nonce)
    : Handshake(std::move(credentials), kHelloBytes), expectation_(expectation) {
  nonce_ = nonce;
}

std::vector<std::byte> AcceptingHandshake::has_no_room() { return encode_challenge(Refusal::kNoRoom, {}, {}); }

void AcceptingHandshake::on_message(std::span<const std::byte> message) {
  if (hello_.empty()) {
    on_hello(message);
  } else {
    on_proof(message);
  }
}

void AcceptingHandshake::on_hello(std::span<const std::byte> bytes) {
  const Hello hello = decode_hello(bytes);
  const Refusal refusal = judge(hello, credentials_, expectation_);
  if (refusal != Refusal::kNone) {
    send(encode_challenge(refusal, {}, {}));
    refuse(explain(refusal, true));
    return;
  }
  hello_.assign(bytes.begin(), bytes.end());
  purpose_ = hello.purpose;
  send(encode_challenge(Refusal::kNone, nonce_, proof_of(false)));
  expect(kProofBytes);
}

void AcceptingHandshake::on_proof(std::span<const std::byte> bytes) {
  Digest proof{};
  std::copy(bytes.begin(), bytes.end(), proof.begin());
  if (!equal_in_constant_time(proof, proof_of(true))) {
    refuse("presented a different job secret");
    return;
  }
  send({&kAdmitted, 1});
  accept();
}

}  // namespace ciranda
