// Any MPI: built once against the headers of each kind of binary interface, Open MPI's and MPICH's. Intel MPI has the
// latter.
#include <mpi.h>

#include <stdexcept>
#include <vector>

#include "system.hpp"

namespace peers {
namespace {

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error("MPI failed");
}

class MpiSystem final : public System {
 public:
  explicit MpiSystem(const World& world) : size_(world.size) {
    int granted = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &granted));
    int rank = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    if (rank != world.rank) throw std::runtime_error("MPI and Ciranda number the ranks differently");
  }
  ~MpiSystem() override { MPI_Finalize(); }

  std::string version() const override {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    return text.substr(0, text.find_first_of(",\n"));
  }

  Call bind(const Case& what, std::span<float> buffer, std::span<float> result) override {
    const int count = static_cast<int>(what.count);
    const int part = count / size_;
    switch (what.collective) {
      case Collective::kAllreduce:
        return [buffer, count] {
          check(MPI_Allreduce(MPI_IN_PLACE, buffer.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
          return std::span<const float>(buffer);
        };
      case Collective::kBroadcast:
        return [buffer, count] {
          check(MPI_Bcast(buffer.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD));
          return std::span<const float>(buffer);
        };
      case Collective::kAllgather:
        return [buffer, result, count] {
          check(MPI_Allgather(buffer.data(), count, MPI_FLOAT, result.data(), count, MPI_FLOAT, MPI_COMM_WORLD));
          return std::span<const float>(result);
        };
      case Collective::kReducescatter:
        return [buffer, result, part] {
          check(MPI_Reduce_scatter_block(buffer.data(), result.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
          return std::span<const float>(result);
        };
      case Collective::kAlltoall:
        return [buffer, result, part] {
          check(MPI_Alltoall(buffer.data(), part, MPI_FLOAT, result.data(), part, MPI_FLOAT, MPI_COMM_WORLD));
          return std::span<const float>(result);
        };
      case Collective::kManyAllreduces: return many_allreduces(buffer);
    }
    return {};
  }

 private:
  static Call many_allreduces(std::span<float> buffer) {
    return [buffer, pieces = pieces_of(buffer), requests = std::vector<MPI_Request>()]() mutable {
      requests.clear();
      for (const std::span<float> piece : pieces) {
        const int count = static_cast<int>(piece.size());
        check(MPI_Iallreduce(MPI_IN_PLACE, piece.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                             &requests.emplace_back()));
      }
      check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
      return std::span<const float>(buffer);
    };
  }

  int size_;
};

}  // namespace
}  // namespace peers

extern "C" peers::System* open_system(const peers::World& world) { return new peers::MpiSystem(world); }
