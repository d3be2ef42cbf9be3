#include "bindings/mpi/handles.hpp"

#include <ciranda/table.h>

#include <array>
#include <string>

#include "bindings/mpi/errors.hpp"

namespace ciranda::mpi {
namespace {

// In the order of the handles, which follow on from kDatatypes and kOps.
#define CIRANDA_MPI_OURS(name, ours) CIRANDA_##ours,
constexpr std::array kDtypes{CIRANDA_MPI_DATATYPES(CIRANDA_MPI_OURS)};
constexpr std::array kReduceOps{CIRANDA_MPI_OPS(CIRANDA_MPI_OURS)};
#undef CIRANDA_MPI_OURS

}  // namespace

ciranda_dtype dtype_of(Datatype datatype) {
  const std::uintptr_t index = datatype - kDatatypes - 1;
  if (index >= kDtypes.size()) {
    throw Failure{"ciranda has no such element type (handle " + std::to_string(datatype) + ")"};
  }
  return kDtypes[index];
}

ciranda_reduce_op op_of(Op op, ciranda_dtype dtype) {
  const std::uintptr_t index = op - kOps - 1;
  if (index >= kReduceOps.size()) {
    throw Failure{"ciranda has no such operator (handle " + std::to_string(op) + ")"};
  }
  const ciranda_reduce_op ours = kReduceOps[index];
  if (ciranda_reduce_op_accepts(ours, dtype) == 0) {
    throw Failure{std::string("ciranda does not combine elements of ") + ciranda_dtype_name(dtype) + " by " +
                  ciranda_reduce_op_name(ours)};
  }
  return ours;
}

}  // namespace ciranda::mpi
