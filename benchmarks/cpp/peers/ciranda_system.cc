#include "ciranda_system.hpp"

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

// The calls of one case, for numbers of type T.
template <typename T>
class Binding {
 public:
  Binding(ciranda::Context& world, std::string name, std::span<std::byte> buffer, std::span<std::byte> result)
      : world_(world), name_(std::move(name)), buffer_(buffer), result_(result), values_(as<T>(buffer)) {}

  Call call_of(Collective collective) const {
    switch (collective) {
      case Collective::kAllreduce: return with_result(buffer_, &Binding::allreduce);
      case Collective::kBroadcast: return with_result(buffer_, &Binding::broadcast);
      case Collective::kAllgather: return with_result(result_, &Binding::allgather);
      case Collective::kReducescatter:
        return with_result(result_.first(result_.size() / static_cast<std::size_t>(world_.size())),
                           &Binding::reducescatter);
      case Collective::kAlltoall: return with_result(result_, &Binding::alltoall);
      case Collective::kManyAllreduces: return many_allreduces();
    }
    return {};
  }

 private:
  using Perform = void (Binding::*)(std::span<T> result) const;
  void allreduce(std::span<T>) const { world_.allreduce(values_, {.name = name_}); }
  void broadcast(std::span<T>) const { world_.broadcast(values_, {.name = name_}); }
  void allgather(std::span<T> result) const { world_.allgather(values_, result, {.name = name_}); }
  void reducescatter(std::span<T> result) const { world_.reducescatter(values_, result, {.name = name_}); }
  void alltoall(std::span<T> result) const { world_.alltoall(values_, result, {.name = name_}); }

  Call with_result(std::span<std::byte> result, Perform perform) const {
    return [self = *this, result, perform] {
      (self.*perform)(as<T>(result));
      return std::span<const std::byte>(result);
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
        pending.push_back(self.world_.allreduce_async(piece.values, {.name = piece.name, .deferrable = true}));
      }
      for (const ciranda::Operation& one : pending) one.wait();
      return std::span<const std::byte>(self.buffer_);
    };
  }

  ciranda::Context& world_;
  std::string name_;
  std::span<std::byte> buffer_;
  std::span<std::byte> result_;
  std::span<T> values_;
};

}  // namespace

std::string CirandaSystem::version() const { return CIRANDA_PEERS_VERSION; }

Call CirandaSystem::bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) {
  return with_type(
      what.dtype, [&]<typename T>() { return Binding<T>(world_, what.name, buffer, result).call_of(what.collective); });
}

}  // namespace peers
