// The constants of MPI, as variables of 8 bytes. jaxlib reads an int, a handle or a pointer from each, according to its
// kind. An int is read from the first four bytes, which on little-endian machines are the low half.
#include <bit>

#include "bindings/mpi/abi.hpp"
#include "bindings/mpi/handles.hpp"
#include "bindings/mpi/names.hpp"

static_assert(std::endian::native == std::endian::little);

namespace {

#define CIRANDA_MPI_NUMBER(name) kNumberOf##name,
enum : std::intptr_t {
  kBeforeAll = ciranda::mpi::kWithoutMeaning,
  CIRANDA_MPI_CONSTANTS_WITHOUT_MEANING(CIRANDA_MPI_NUMBER)
};
#undef CIRANDA_MPI_NUMBER

}  // namespace

#define CIRANDA_MPI_CONSTANT(name, value)               \
  CIRANDA_API extern const std::intptr_t MPIABI_##name; \
  const std::intptr_t MPIABI_##name = value;
#define CIRANDA_MPI_HANDLE(name, ours) CIRANDA_MPI_CONSTANT(name, k##name)
#define CIRANDA_MPI_NUMBERED(name) CIRANDA_MPI_CONSTANT(name, kNumberOf##name)

extern "C" {
using namespace ciranda::mpi;  // NOLINT(google-build-using-namespace)
CIRANDA_MPI_OTHER_CONSTANTS(CIRANDA_MPI_CONSTANT)
CIRANDA_MPI_DATATYPES(CIRANDA_MPI_HANDLE)
CIRANDA_MPI_OPS(CIRANDA_MPI_HANDLE)
CIRANDA_MPI_CONSTANTS_WITHOUT_MEANING(CIRANDA_MPI_NUMBERED)

#define CIRANDA_MPI_VERSION(name, value) \
  CIRANDA_API extern const int name;     \
  const int name = value;
CIRANDA_MPI_VERSION(mpiabi_version_major, kAbiMajor)
CIRANDA_MPI_VERSION(mpiabi_version_minor, kAbiMinor)
CIRANDA_MPI_VERSION(mpiabi_version_patch, kAbiPatch)
CIRANDA_MPI_VERSION(mpiwrapper_version_major, kAbiMajor)
CIRANDA_MPI_VERSION(mpiwrapper_version_minor, kAbiMinor)
CIRANDA_MPI_VERSION(mpiwrapper_version_patch, kAbiPatch)

// MPItrampoline calls this once it has found all symbols; Fortran is not supported.
CIRANDA_API void mpiwrapper_export_fortran_constants_() {}
}
