#include "ciranda_system.hpp"

#include <optional>

namespace peers {
namespace {

// Results that the library allocates live until the next call.
template <typename Perform>
Call keeping_its_result(Perform perform) {
  auto kept = std::make_shared<std::optional<ciranda::Gathered<float>>>();
  return [kept, perform] {
    kept->emplace(perform());
    return (*kept)->values();
  };
}

struct NamedPiece {
  std::string name;
  std::span<float> values;
};

Call many_allreduces(ciranda::Context& circle, const std::string& name, std::span<float> buffer) {
  std::vector<NamedPiece> pieces;
  for (const std::span<float> piece : pieces_of(buffer)) {
    pieces.push_back({name + "." + std::to_string(pieces.size()), piece});
  }
  return [&circle, buffer, pieces] {
    std::vector<ciranda::Operation> pending;
    pending.reserve(pieces.size());
    for (const NamedPiece& piece : pieces) {
      pending.push_back(circle.allreduce_async(piece.values, {.name = piece.name, .deferrable = true}));
    }
    for (const ciranda::Operation& one : pending) one.wait();
    return std::span<const float>(buffer);
  };
}

}  // namespace

std::string CirandaSystem::version() const { return CIRANDA_PEERS_VERSION; }

Call CirandaSystem::bind(const Case& what, std::span<float> buffer, std::span<float>) {
  ciranda::Context& circle = circle_;
  const std::string name = what.name;
  switch (what.collective) {
    case Collective::kAllreduce:
      return [&circle, name, buffer] {
        circle.allreduce(buffer, {.name = name});
        return std::span<const float>(buffer);
      };
    case Collective::kBroadcast:
      return [&circle, name, buffer] {
        circle.broadcast(buffer, {.name = name});
        return std::span<const float>(buffer);
      };
    case Collective::kAllgather:
      return keeping_its_result([&circle, name, buffer] { return circle.allgather(buffer, {.name = name}); });
    case Collective::kReducescatter:
      return keeping_its_result([&circle, name, buffer] { return circle.reducescatter(buffer, {.name = name}); });
    case Collective::kAlltoall:
      return keeping_its_result([&circle, name, buffer] { return circle.alltoall(buffer, {.name = name}); });
    case Collective::kManyAllreduces: return many_allreduces(circle, name, buffer);
  }
  return {};
}

}  // namespace peers
