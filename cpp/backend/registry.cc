#include "backend/registry.hpp"

#include <array>

#include "backend/native.hpp"

namespace ciranda {
namespace {

std::unique_ptr<Backend> make_native(Mesh& mesh, const Config& config) {
  return std::make_unique<NativeBackend>(mesh, native_options(config));
}

constexpr std::array kBackends{
    BackendRow{.memory = DeviceType::kHost, .name = "native", .make = make_native},
};

}  // namespace

std::span<const BackendRow> all_backends() { return kBackends; }

}  // namespace ciranda
