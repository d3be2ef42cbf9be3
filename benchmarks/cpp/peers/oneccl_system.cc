// Intel's oneCCL, in host memory. It brings an MPI of its own, so it is measured under that one's mpiexec.
#include <algorithm>
#include <array>
#include <oneapi/ccl.hpp>

#include "system.hpp"

namespace peers {
namespace {

class OneCclSystem final : public System {
 public:
  explicit OneCclSystem(const World& world) : size_(world.size), communicator_(connect(world)) {}

  std::string version() const override {
    const ccl::library_version version = ccl::get_library_version();
    return "oneCCL " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.update);
  }

  Call bind(const Case& what, std::span<float> buffer, std::span<float> result) override {
    const std::size_t count = what.count;
    const std::size_t part = count / static_cast<std::size_t>(size_);
    switch (what.collective) {
      case Collective::kAllreduce:
        return [this, buffer, count] {
          ccl::allreduce(buffer.data(), buffer.data(), count, ccl::reduction::sum, communicator_).wait();
          return std::span<const float>(buffer);
        };
      case Collective::kBroadcast:
        return [this, buffer, count] {
          ccl::broadcast(buffer.data(), count, 0, communicator_).wait();
          return std::span<const float>(buffer);
        };
      case Collective::kAllgather: {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
        return [this, buffer, result, count, counts] {
          ccl::allgatherv(buffer.data(), count, result.data(), counts, communicator_).wait();
          return std::span<const float>(result);
        };
      }
      case Collective::kReducescatter:
        return [this, buffer, result, part] {
          ccl::reduce_scatter(buffer.data(), result.data(), part, ccl::reduction::sum, communicator_).wait();
          return std::span<const float>(result);
        };
      case Collective::kAlltoall:
        return [this, buffer, result, part] {
          ccl::alltoall(buffer.data(), result.data(), part, communicator_).wait();
          return std::span<const float>(result);
        };
    }
    return {};
  }

 private:
  // Rank 0's key-value store, whose address all others need.
  static ccl::communicator connect(const World& world) {
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address{};
    if (world.rank == 0) {
      store = ccl::create_main_kvs();
      address = store->get_address();
    }
    world.broadcast_from_0(std::as_writable_bytes(std::span(address)));
    if (world.rank != 0) store = ccl::create_kvs(address);
    return ccl::create_communicator(world.size, world.rank, store);
  }

  int size_;
  ccl::communicator communicator_;
};

}  // namespace
}  // namespace peers

extern "C" peers::System* open_system(const peers::World& world) { return new peers::OneCclSystem(world); }
