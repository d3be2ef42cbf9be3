#include "backend/registry.hpp"

#include <array>

namespace ciranda {
namespace {

constexpr std::array<BackendRow, 0> kBackends{};

}  // namespace

std::span<const BackendRow> all_backends() { return kBackends; }

}  // namespace ciranda
