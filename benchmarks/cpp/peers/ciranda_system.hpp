// Ciranda, called through its C++ interface like by a user: blocking, named, negotiated.
#pragma once

#include <ciranda/ciranda.hpp>

#include "system.hpp"

namespace peers {

class CirandaSystem final : public System {
 public:
  // REQUIRES: `world` outlives this object.
  explicit CirandaSystem(ciranda::Context& world) : world_(world) {}

  std::string version() const override;
  Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) override;

 private:
  ciranda::Context& world_;
};

}  // namespace peers
