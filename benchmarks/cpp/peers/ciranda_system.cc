#include "ciranda_system.hpp"

#include <optional>
#include <utility>

#include "numbers.hpp"

template <>
struct ciranda::DataTypeOf<peers::Float16> {
  static constexpr ciranda_dtype value = CIRANDA_FLOAT16;
};
template <>
struct ciranda::DataTypeOf<peers::BFloat16> {
  static constexpr ciranda_dtype value = CIRANDA_BFLOAT16;
};

namespace peers {
namespace {

template <typename T>
struct NamedPiece {
  std::string name;
  std::span<T> values;
};

// One case, of numbers of type T.
template <typename T>
class Binding {
 public:
  Binding(ciranda::Context& circle, std::string name, std::span<std::byte> buffer)
      : circle_(circle), name_(std::move(name)), buffer_(buffer), values_(as<T>(buffer)) {}

  Call call_of(Collective collective) const {
    switch (collective) {
      case Collective::kAllreduce: return in_place(&Binding::allreduce);
      case Collective::kBroadcast: return in_place(&Binding::broadcast);
      case Collective::kAllgather:
        return keeping_its_result(
            [self = *this] { return self.circle_.allgather(self.values_, {.name = self.name_}); });
      case Collective::kReducescatter:
        return keeping_its_result(
            [self = *this] { return self.circle_.reducescatter(self.values_, {.name = self.name_}); });
      case Collective::kAlltoall:
        return keeping_its_result([self = *this] { return self.circle_.alltoall(self.values_, {.name = self.name_}); });
      case Collective::kManyAllreduces: return many_allreduces();
    }
    return {};
  }

 private:
  void allreduce() const { circle_.allreduce(values_, {.name = name_}); }
  void broadcast() const { circle_.broadcast(values_, {.name = name_}); }

  Call in_place(void (Binding::*perform)() const) const {
    return [self = *this, perform] {
      (self.*perform)();
      return std::span<const std::byte>(self.buffer_);
    };
  }

  // Results that the library allocates live until the next call.
  template <typename Perform>
  static Call keeping_its_result(Perform perform) {
    auto kept = std::make_shared<std::optional<ciranda::Gathered<T>>>();
    return [kept, perform] {
      kept->emplace(perform());
      return std::as_bytes((*kept)->values());
    };
  }

  Call many_allreduces() const {
    std::vector<NamedPiece<T>> pieces;
    for (const std::span<std::byte> piece : pieces_of(buffer_)) {
      pieces.push_back({name_ + "." + std::to_string(pieces.size()), as<T>(piece)});
    }
    return [self = *this, pieces] {
      std::vector<ciranda::Operation> pending;
      pending.reserve(pieces.size());
      for (const NamedPiece<T>& piece : pieces) {
        pending.push_back(self.circle_.allreduce_async(piece.values, {.name = piece.name, .deferrable = true}));
      }
      for (const ciranda::Operation& one : pending) one.wait();
      return std::span<const std::byte>(self.buffer_);
    };
  }

  ciranda::Context& circle_;
  std::string name_;
  std::span<std::byte> buffer_;
  std::span<T> values_;
};

}  // namespace

std::string CirandaSystem::version() const { return CIRANDA_PEERS_VERSION; }

Call CirandaSystem::bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte>) {
  return with_type(what.dtype,
                   [&]<typename T>() { return Binding<T>(circle_, what.name, buffer).call_of(what.collective); });
}

}  // namespace peers
