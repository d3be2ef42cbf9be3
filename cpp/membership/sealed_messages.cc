#include "membership/sealed_messages.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "crypto/hkdf.hpp"

namespace ciranda {
namespace {

// Whatever CIRANDA_WIRE says of tensors: the store does not know the setting, and messages are few. AES even where it
// has no instructions, as both ends must use the same cipher before they can tell each other of themselves.
constexpr SealKind kKind{WireLevel::kEncrypt, Cipher::kAes256Gcm};

std::unique_ptr<Seal> seal_of(const Aead::Key& connection) {
  constexpr std::string_view kPurpose = "ciranda messages of joining";
  Aead::Key key{};
  hkdf_sha256(key, connection, {}, std::as_bytes(std::span(kPurpose)));
  return make_seal(kKind, key);
}

// What the tag and the checksum cover of a header.
template <typename Header>
std::span<const std::byte> length_in(const Header& header) {
  return std::as_bytes(std::span(&header, 1)).first(sizeof(header.n_bytes));
}
template <typename Header>
std::span<const std::byte> length_and_tag_in(const Header& header) {
  return std::as_bytes(std::span(&header, 1)).first(sizeof(header.n_bytes) + sizeof(header.tag));
}

}  // namespace

SealedMessages::SealedMessages(const ConnectionKeys& keys)
    : outgoing_(seal_of(keys.outgoing)), incoming_(seal_of(keys.incoming)) {}

std::vector<std::byte> SealedMessages::seal(std::span<const std::byte> message) {
  std::vector<std::byte> bytes(kHeaderBytes + message.size());
  Header header;
  header.n_bytes = static_cast<std::uint32_t>(message.size());
  header.tag = outgoing_->seal(n_sealed_, length_in(header), std::array{message}, bytes.data() + kHeaderBytes);
  header.checksum = outgoing_->checksum_of(n_sealed_++, length_and_tag_in(header));
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  return bytes;
}

std::optional<SealedMessages::Header> SealedMessages::header() const {
  if (received_.size() < kHeaderBytes) return std::nullopt;
  Header header;
  std::memcpy(&header, received_.data(), kHeaderBytes);
  return header;
}

std::size_t SealedMessages::wants() const {
  const std::size_t n_bytes = kHeaderBytes + (header() ? header()->n_bytes : 0);
  return n_bytes > received_.size() ? n_bytes - received_.size() : 0;
}

Result<std::optional<std::vector<std::byte>>> SealedMessages::next(std::size_t most_bytes) {
  const std::optional<Header> header = this->header();
  if (!header) return std::optional<std::vector<std::byte>>();
  if (header->checksum != incoming_->checksum_of(n_opened_, length_and_tag_in(*header))) return not_as_sealed();
  if (header->n_bytes > most_bytes) {
    return Status::internal("sent a message of " + std::to_string(header->n_bytes) + " bytes; at most " +
                            std::to_string(most_bytes) + " are allowed");
  }
  if (wants() > 0) return std::optional<std::vector<std::byte>>();
  const auto begin = received_.begin() + kHeaderBytes;
  const auto end = begin + header->n_bytes;
  std::optional<std::vector<std::byte>> message(std::in_place, begin, end);
  received_.erase(received_.begin(), end);
  if (!incoming_->opens(n_opened_, length_in(*header), header->tag, *message)) return not_as_sealed();
  ++n_opened_;
  return message;
}

Status SealedMessages::not_as_sealed() const {
  return Status::ranks_lost("is lost: message " + std::to_string(n_opened_) +
                            " on its connection is not as it was sealed: memory, a network card or what lies between "
                            "the two is faulty, or somebody interferes");
}

}  // namespace ciranda
