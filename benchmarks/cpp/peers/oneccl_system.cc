// Intel's oneCCL, in host memory. It contains an MPI of its own, so it is measured under the mpiexec of that MPI.
#include <algorithm>
#include <array>
#include <oneapi/ccl.hpp>

#include "system.hpp"

namespace peers {
namespace {

ccl::datatype type_of(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16: return ccl::datatype::float16;
    case DataType::kBFloat16: return ccl::datatype::bfloat16;
    case DataType::kFloat32: break;
  }
  return ccl::datatype::float32;
}

class OneCclSystem final : public System {
 public:
  explicit OneCclSystem(const World& world) : size_(world.size), communicator_(connect(world)) {}

  std::string version() const override {
    const ccl::library_version version = ccl::get_library_version();
    return "oneCCL " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.update);
  }

  Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) override {
    const std::size_t count = what.count;
    const ccl::datatype type = type_of(what.dtype);
    const std::size_t part = count / static_cast<std::size_t>(size_);
    switch (what.collective) {
      case Collective::kAllreduce:
        return [this, buffer, count, type] {
          ccl::allreduce(buffer.data(), buffer.data(), count, type, ccl::reduction::sum, communicator_).wait();
          return std::span<const std::byte>(buffer);
        };
      case Collective::kBroadcast:
        return [this, buffer, count, type] {
          ccl::broadcast(buffer.data(), count, type, 0, communicator_).wait();
          return std::span<const std::byte>(buffer);
        };
      case Collective::kAllgather: {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(size_), count);
        return [this, buffer, result, count, counts, type] {
          ccl::allgatherv(buffer.data(), count, result.data(), counts, type, communicator_).wait();
          return std::span<const std::byte>(result);
        };
      }
      case Collective::kReducescatter:
        return [this, buffer, result = result.first(part * size_of(what.dtype)), part, type] {
          ccl::reduce_scatter(buffer.data(), result.data(), part, type, ccl::reduction::sum, communicator_).wait();
          return std::span<const std::byte>(result);
        };
      case Collective::kAlltoall:
        return [this, buffer, result, part, type] {
          ccl::alltoall(buffer.data(), result.data(), part, type, communicator_).wait();
          return std::span<const std::byte>(result);
        };
      case Collective::kManyAllreduces: return {};
    }
    return {};
  }

 private:
  // Connects through rank 0's key-value store, whose address all other ranks need.
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
