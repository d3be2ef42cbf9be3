// MPI's communicators: their members, and how they are split.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/mpi/calls.hpp"
#include "bindings/mpi/errors.hpp"

namespace ciranda::mpi {
namespace {

constexpr std::uint32_t kOwnLanes = 62;   // lanes 1 to 62; lane 0 is the world's
constexpr std::uint32_t kFormed = 32768;  // the most sets in which a rank can be the lowest

// The number of sets in which this process is the lowest rank. Their numbers descend from kFormed - 1; the numbers of
// other sets ascend from 0.
std::atomic<std::uint32_t> n_formed{0};

// A rank's contribution to a split.
struct Said {
  std::int64_t color;
  std::int64_t key;
  std::int64_t n_formed;
};

struct Part {
  std::vector<std::int32_t> ranks;  // in the order of their keys
  int rank = 0;
  std::uint32_t n_formed = 0;  // of the lowest rank
};

std::vector<Said> exchange(Communicator& parent, const Said& own) {
  std::vector<Said> all(static_cast<std::size_t>(parent.size()));
  constexpr std::int64_t kNumbers = sizeof(Said) / sizeof(std::int64_t);
  ciranda_request request = request_of(CIRANDA_ALLGATHER);
  request.flags = CIRANDA_REQUEST_HAS_ROOM;
  run(parent, request, Tensor(&own, all.data(), CIRANDA_INT64, 1, kNumbers), 0, true);
  return all;  // in the order of the world
}

[[noreturn]] void refuse(const std::vector<Said>& all, std::int64_t color) {
  std::string keys;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].color == color)
      keys += " rank " + std::to_string(rank) + " as " + std::to_string(all[rank].key) + ".";
  }
  throw Failure{"the ranks do not agree on who is in it (color " + std::to_string(color) + ":" + keys +
                "): either their programs differ, or a process has several devices, which JAX's collectives by MPI do "
                "not support (jax_num_cpu_devices must be 1)"};
}

// The part with this rank's color. jaxlib's keys number the members of a group from 0; other keys are refused.
Part part_of(const Communicator& parent, const std::vector<Said>& all, const Said& own) {
  std::vector<std::pair<std::int64_t, std::int32_t>> members;  // key, number in the world
  for (int rank = 0; rank < parent.size(); ++rank) {
    const Said& said = all[parent.positions()[static_cast<std::size_t>(rank)]];
    if (said.color == own.color) members.emplace_back(said.key, parent.ranks()[static_cast<std::size_t>(rank)]);
  }
  std::ranges::sort(members);
  Part part;
  part.rank = static_cast<int>(own.key);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].first != static_cast<std::int64_t>(i)) refuse(all, own.color);
    part.ranks.push_back(members[i].second);
  }
  const std::int32_t lowest = *std::ranges::min_element(part.ranks);
  const auto at = std::ranges::find(parent.ranks(), lowest) - parent.ranks().begin();
  part.n_formed = static_cast<std::uint32_t>(all[parent.positions()[static_cast<std::size_t>(at)]].n_formed);
  return part;
}

Comm split(Comm comm, int color, int key) {
  const auto parent = communicator_of(comm);
  const std::uint32_t nth = parent->count_split();
  const Said own{color, key, n_formed.load()};
  const std::vector<Said> all = exchange(*parent, own);
  if (color == kUndefined) return kCommNull;
  const Part part = part_of(*parent, all, own);
  if (part.n_formed >= kFormed) throw Failure{"there were 32768 communicators already"};
  const bool is_lowest = part.ranks[static_cast<std::size_t>(part.rank)] == *std::ranges::min_element(part.ranks);
  if (is_lowest) ++n_formed;
  return add_communicator(std::make_shared<Communicator>(parent->name() + "/" + std::to_string(nth), part.ranks,
                                                         part.rank, 1 + nth % kOwnLanes, kFormed - 1 - part.n_formed));
}

}  // namespace
}  // namespace ciranda::mpi

extern "C" {

using namespace ciranda::mpi;  // NOLINT(google-build-using-namespace)

// jaxlib ignores the result: on failure it gets a communicator whose calls fail.
CIRANDA_API int MPIABI_Comm_split(Comm comm, int color, int key, Comm* made) {
  *made = kCommNull;
  const int error = guarded("MPI_Comm_split", [&] { *made = split(comm, color, key); });
  if (error != 0) {
    const std::string text = text_of(error);
    guarded("MPI_Comm_split", [&] { *made = add_communicator(std::make_shared<Communicator>(text)); });
  }
  return error;
}

CIRANDA_API int MPIABI_Comm_dup(Comm comm, Comm* made) {
  *made = kCommNull;
  return guarded("MPI_Comm_dup", [&] {
    const int rank = communicator_of(comm)->rank();
    *made = split(comm, 0, rank);
  });
}

CIRANDA_API int MPIABI_Comm_free(Comm* comm) {
  return guarded("MPI_Comm_free", [&] { remove_communicator(std::exchange(*comm, kCommNull)); });
}

CIRANDA_API int MPIABI_Comm_rank(Comm comm, int* rank) {
  *rank = kUndefined;
  return guarded("MPI_Comm_rank", [&] { *rank = communicator_of(comm)->rank(); });
}

CIRANDA_API int MPIABI_Comm_size(Comm comm, int* size) {
  *size = 0;
  return guarded("MPI_Comm_size", [&] { *size = communicator_of(comm)->size(); });
}

CIRANDA_API int MPIABI_Comm_compare(Comm one, Comm other, int* result) {
  *result = kUnequal;
  return guarded("MPI_Comm_compare", [&] {
    const auto a = communicator_of(one);
    const auto b = communicator_of(other);
    if (one == other) {
      *result = kIdent;
    } else if (a->ranks() == b->ranks()) {
      *result = kCongruent;
    } else if (std::ranges::is_permutation(a->ranks(), b->ranks())) {
      *result = kSimilar;
    }
  });
}
}
