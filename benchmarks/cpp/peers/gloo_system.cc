// gloo itself, without torch around it, over the loopback interface.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "system.hpp"

namespace peers {
namespace {

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

  Call bind(const Case& what, std::span<float> buffer, std::span<float> result) override {
    const std::shared_ptr<gloo::Context> context = context_;
    switch (what.collective) {
      case Collective::kAllreduce:
        return [context, buffer] {
          gloo::AllreduceOptions options(context);
          options.setOutput(buffer.data(), buffer.size());
          options.setReduceFunction(
              static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
          gloo::allreduce(options);
          return std::span<const float>(buffer);
        };
      case Collective::kBroadcast:
        return [context, buffer] {
          gloo::BroadcastOptions options(context);
          options.setOutput(buffer.data(), buffer.size());
          options.setRoot(0);
          gloo::broadcast(options);
          return std::span<const float>(buffer);
        };
      case Collective::kAllgather:
        return [context, buffer, result] {
          gloo::AllgatherOptions options(context);
          options.setInput(buffer.data(), buffer.size());
          options.setOutput(result.data(), result.size());
          gloo::allgather(options);
          return std::span<const float>(result);
        };
      case Collective::kAlltoall:
        return [context, buffer, result] {
          gloo::AlltoallOptions options(context);
          options.setInput(buffer.data(), buffer.size());
          options.setOutput(result.data(), result.size());
          gloo::alltoall(options);
          return std::span<const float>(result);
        };
      case Collective::kReducescatter: return {};
    }
    return {};
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace peers

extern "C" peers::System* open_system(const peers::World& world) { return new peers::GlooSystem(world); }
