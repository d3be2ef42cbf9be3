// Any MPI. This file is built twice, with the headers of Open MPI and of MPICH, which have different binary interfaces.
// Intel MPI has that of MPICH.
#include <mpi.h>

#include <iomanip>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "mpi_sums.hpp"
#include "system.hpp"

namespace peers {
namespace {

constexpr int kTries = 5;

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error("MPI failed");
}

// The least time of the call on this rank.
double least_seconds(const Call& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    check(MPI_Barrier(MPI_COMM_WORLD));
    const double start = MPI_Wtime();
    call();
    least = std::min(least, MPI_Wtime() - start);
  }
  return least;
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
    return text.substr(0, text.find_first_of(",\n")) + chosen_;
  }

  // Selects the way of summing that is the fastest for this case, by rank 0's clock.
  Call bind(const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) override {
    const std::vector<MpiSum> sums = sums_of(what.dtype);
    std::vector<double> took;
    for (const MpiSum& sum : sums) {
      took.push_back(sums.size() == 1 ? 1 : least_seconds(bind_with(sum, what, buffer, result)));
    }
    check(MPI_Bcast(took.data(), static_cast<int>(took.size()), MPI_DOUBLE, 0, MPI_COMM_WORLD));
    const auto best = static_cast<std::size_t>(std::min_element(took.begin(), took.end()) - took.begin());
    if (what.dtype != DataType::kFloat32) note(buffer.size(), sums, took, best);
    return bind_with(sums[best], what, buffer, result);
  }

 private:
  void note(std::size_t n_bytes, const std::vector<MpiSum>& sums, const std::vector<double>& took, std::size_t best) {
    std::ostringstream text;
    text << ", " << n_bytes << " B by " << sums[best].what << " sum";
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (i != best) text << " (by " << sums[i].what << ' ' << std::setprecision(2) << took[i] / took[best] << "x)";
    }
    chosen_ += text.str();
  }

  Call bind_with(const MpiSum& sum, const Case& what, std::span<std::byte> buffer, std::span<std::byte> result) const {
    const int count = static_cast<int>(what.count);
    const int part = count / size_;
    const MPI_Datatype type = sum.datatype;
    const MPI_Op op = sum.op;
    switch (what.collective) {
      case Collective::kAllreduce:
        return [buffer, count, type, op] {
          check(MPI_Allreduce(MPI_IN_PLACE, buffer.data(), count, type, op, MPI_COMM_WORLD));
          return std::span<const std::byte>(buffer);
        };
      case Collective::kBroadcast:
        return [buffer, count, type] {
          check(MPI_Bcast(buffer.data(), count, type, 0, MPI_COMM_WORLD));
          return std::span<const std::byte>(buffer);
        };
      case Collective::kAllgather:
        return [buffer, result, count, type] {
          check(MPI_Allgather(buffer.data(), count, type, result.data(), count, type, MPI_COMM_WORLD));
          return std::span<const std::byte>(result);
        };
      case Collective::kReducescatter:
        return [buffer, result = result.first(result.size() / static_cast<std::size_t>(size_)), part, type, op] {
          check(MPI_Reduce_scatter_block(buffer.data(), result.data(), part, type, op, MPI_COMM_WORLD));
          return std::span<const std::byte>(result);
        };
      case Collective::kAlltoall:
        return [buffer, result, part, type] {
          check(MPI_Alltoall(buffer.data(), part, type, result.data(), part, type, MPI_COMM_WORLD));
          return std::span<const std::byte>(result);
        };
      case Collective::kManyAllreduces: return many_allreduces(sum, buffer, buffer.size() / what.count);
    }
    return {};
  }

  static Call many_allreduces(const MpiSum& sum, std::span<std::byte> buffer, std::size_t n_each) {
    return [buffer, n_each, type = sum.datatype, op = sum.op, pieces = pieces_of(buffer),
            requests = std::vector<MPI_Request>()]() mutable {
      requests.clear();
      for (const std::span<std::byte> piece : pieces) {
        const int count = static_cast<int>(piece.size() / n_each);
        check(MPI_Iallreduce(MPI_IN_PLACE, piece.data(), count, type, op, MPI_COMM_WORLD, &requests.emplace_back()));
      }
      check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
      return std::span<const std::byte>(buffer);
    };
  }

  int size_;
  std::string chosen_;
};

}  // namespace
}  // namespace peers

extern "C" peers::System* open_system(const peers::World& world) { return new peers::MpiSystem(world); }
