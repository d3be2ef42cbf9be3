// Payload: the bytes of a tensor in a message. A received payload owns its bytes. A payload to send refers to the
// caller's memory, so that its bytes are copied only once: into the frame.
// Used by agree/, DataPlane and RoundsByMessages; a plain value.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ciranda {

class Payload {
 public:
  Payload() = default;
  explicit Payload(std::vector<std::byte> own) : own_(std::move(own)), bytes_(own_) {}
  // The bytes must outlive this object.
  explicit Payload(std::span<const std::byte> bytes) : bytes_(bytes) {}
  ~Payload() = default;

  Payload(Payload&& other) noexcept : own_(std::move(other.own_)), bytes_(std::exchange(other.bytes_, {})) {}
  Payload& operator=(Payload&& other) noexcept {
    own_ = std::move(other.own_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  Payload(const Payload& other) : Payload(std::vector<std::byte>(other.bytes_.begin(), other.bytes_.end())) {}
  Payload& operator=(const Payload& other) { return *this = Payload(other); }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> own_;
  std::span<const std::byte> bytes_;
};

}  // namespace ciranda
