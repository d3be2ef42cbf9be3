#include "crypto/aead.hpp"

#include <openssl/evp.h>

#include "crypto/libcrypto.hpp"

namespace ciranda {
namespace {

EVP_CIPHER* fetch(const char* name) {
  EVP_CIPHER* const cipher = EVP_CIPHER_fetch(libcrypto_context(), name, nullptr);
  require_of_libcrypto(cipher != nullptr, name);
  return cipher;
}

const EVP_CIPHER* find(Cipher cipher) {
  static const EVP_CIPHER* const aes = fetch("AES-256-GCM");  // never freed
  static const EVP_CIPHER* const chacha = fetch("ChaCha20-Poly1305");
  return cipher == Cipher::kAes256Gcm ? aes : chacha;
}

}  // namespace

struct Aead::Context {
  EVP_CIPHER_CTX* evp = EVP_CIPHER_CTX_new();

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_CIPHER_CTX_free(evp); }

  bool begin(const Nonce& nonce, Parts associated, bool is_sealing) {
    bool done = EVP_CipherInit_ex(evp, nullptr, nullptr, nullptr, octets(nonce), is_sealing ? 1 : 0) == 1;
    for (const std::span<const std::byte> part : associated) done = done && update(nullptr, part);
    return done;
  }
  bool update(unsigned char* out, std::span<const std::byte> bytes) {
    int n = 0;
    return bytes.empty() || EVP_CipherUpdate(evp, out, &n, octets(bytes), static_cast<int>(bytes.size())) == 1;
  }
  bool finish() {
    std::array<unsigned char, 16> none{};  // stays unused: neither cipher holds bytes back
    int n = 0;
    return EVP_CipherFinal_ex(evp, none.data(), &n) == 1;
  }
};

Aead::Aead(Cipher cipher, const Key& key) : context_(std::make_unique<Context>()) {
  const bool made =
      context_->evp != nullptr && EVP_CipherInit_ex(context_->evp, find(cipher), nullptr, octets(key), nullptr, 1) == 1;
  require_of_libcrypto(made, "a cipher's context");
}

Aead::~Aead() = default;
Aead::Aead(Aead&&) noexcept = default;
Aead& Aead::operator=(Aead&&) noexcept = default;

Aead::Tag Aead::seal(const Nonce& nonce, Parts associated, Parts parts, std::byte* out) {
  bool made = context_->begin(nonce, associated, true);
  for (const std::span<const std::byte> part : parts) {
    made = made && context_->update(reinterpret_cast<unsigned char*>(out), part);
    out += part.size();
  }
  Tag tag{};
  made = made && context_->finish() &&
         EVP_CIPHER_CTX_ctrl(context_->evp, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1;
  require_of_libcrypto(made, "a sealed message");
  return tag;
}

bool Aead::open(const Nonce& nonce, Parts associated, const Tag& tag, std::span<std::byte> bytes) {
  Tag expected = tag;  // OpenSSL takes a pointer to non-const
  return context_->begin(nonce, associated, false) && context_->update(octets_to(bytes), bytes) &&
         EVP_CIPHER_CTX_ctrl(context_->evp, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(expected.size()),
                             expected.data()) == 1 &&
         context_->finish();
}

}  // namespace ciranda
