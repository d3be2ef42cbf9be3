// gloo without torch, over the loopback interface.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "numbers.hpp"
#include "sums.hpp"
#include "system.hpp"

namespace peers {
namespace {

using Sum = void (*)(void*, const void*, const void*, std::size_t);

// gloo lets its users choose the reduction function. It has functions for this, but none for bfloat16, and a slow one
// for float16.
template <typename T>
constexpr DataType kTypeOf = DataType::kFloat16;
template <>
constexpr DataType kTypeOf<BFloat16> = DataType::kBFloat16;

template <typename T>
void sum(void* out, const void* a, const void* b, std::size_t count) {
  add(kTypeOf<T>, a, b, out, count);
}
template <>
void sum<float>(void* out, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(out, a, b, count);
}

// Returns the call of one case, for numbers of type T.
template <typename T>
Call call_of(Collective collective, const std::shared_ptr<gloo::Context>& context, std::span<std::byte> buffer,
             std::span<std::byte> result) {
  const std::span<T> values = as<T>(buffer);
  const std::span<T> all = as<T>(result);
  switch (collective) {
    case Collective::kAllreduce:
      return [context, buffer, values] {
        gloo::AllreduceOptions options(context);
        options.setOutput(values.data(), values.size());
        options.setReduceFunction(static_cast<Sum>(&sum<T>));
        gloo::allreduce(options);
        return std::span<const std::byte>(buffer);
      };
    case Collective::kBroadcast:
      return [context, buffer, values] {
        gloo::BroadcastOptions options(context);
        options.setOutput(values.data(), values.size());
        options.setRoot(0);
        gloo::broadcast(options);
        return std::span<const std::byte>(buffer);
      };
    case Collective::kAllgather:
      return [context, result, values, all] {
        gloo::AllgatherOptions options(context);
        options.setInput(values.data(), values.size());
        options.setOutput(all.data(), all.size());
        gloo::allgather(options);
        return std::span<const std::byte>(result);
      };
    case Collective::kAlltoall:
      return [context, result, values, all] {
        gloo::AlltoallOptions options(context);
        options.setInput(values.data(), values.size());
        options.setOutput(all.data(), all.size());
        gloo::alltoall(options);
        return std::span<const std::byte>(result);
      };
    case Collective::kReducescatter:
    case Collective::kManyAllreduces: return {};
  }
  return {};
}

class GlooSystem final : public System {
 public:
  explicit GlooSystem(const World& world) {
    gloo::transport::tcp::attr address;
    address.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(world.folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(world.rank, world.size);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  std::string version() const override { return "gloo of Debian"; }

  Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) override {
    return with_type(what.dtype, [&]<typename T>() { return call_of<T>(what.collective, context_, buffer, result); });
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace peers

extern "C" peers::System* open_system(const peers::World& world) { return new peers::GlooSystem(world); }
