#include "bindings/mpi/handles.hpp"

#include <ciranda/table.h>

#include <array>
#include <string>

#include "bindings/mpi/errors.hpp"
#include "bindings/mpi/names.hpp"

namespace ciranda::mpi {
namespace {

// In the order of the handles, which are numbered from kDatatypes and kOps.
#define CIRANDA_MPI_OURS(name, ours) CIRANDA_##ours,
constexpr std::array kDtypes{CIRANDA_MPI_DATATYPES(CIRANDA_MPI_OURS)};
constexpr std::array kReduceOps{CIRANDA_MPI_OPS(CIRANDA_MPI_OURS)};
#undef CIRANDA_MPI_OURS

// The names of the handles that are numbered from kWithoutMeaning.
#define CIRANDA_MPI_NAME(name) "MPI_" #name,
constexpr std::array kOthers{CIRANDA_MPI_CONSTANTS_WITHOUT_MEANING(CIRANDA_MPI_NAME)};
#undef CIRANDA_MPI_NAME

std::string name_of(std::uintptr_t handle) {
  const std::uintptr_t index = handle - kWithoutMeaning - 1;
  return index < kOthers.size() ? kOthers[index] : "of handle " + std::to_string(handle);
}

}  // namespace

ciranda_dtype dtype_of(Datatype datatype) {
  const std::uintptr_t index = datatype - kDatatypes - 1;
  if (index >= kDtypes.size()) throw Failure{"ciranda has no element type " + name_of(datatype)};
  return kDtypes[index];
}

ciranda_reduce_op op_of(Op op, ciranda_dtype dtype) {
  const std::uintptr_t index = op - kOps - 1;
  if (index >= kReduceOps.size()) throw Failure{"ciranda has no operator " + name_of(op)};
  const ciranda_reduce_op ours = kReduceOps[index];
  if (ciranda_reduce_op_accepts(ours, dtype) == 0) {
    throw Failure{std::string("ciranda does not combine elements of ") + ciranda_dtype_name(dtype) + " by " +
                  ciranda_reduce_op_name(ours)};
  }
  return ours;
}

}  // namespace ciranda::mpi
