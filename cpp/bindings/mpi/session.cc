// MPI's initialization, finalization and queries.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bindings/mpi/calls.hpp"
#include "bindings/mpi/errors.hpp"
#include "bindings/mpi/handles.hpp"
#include "bindings/mpi/own_world.hpp"

namespace ciranda::mpi {
namespace {

std::atomic<bool> is_begun{false};
std::atomic<bool> is_ended{false};

// jaxlib ignores the result: after a failure there is no world, and later calls fail.
int begin() {
  const int error = guarded("MPI_Init", [] {
    join_world();
    const native::Context world;
    if (!world) throw Failure{native::kNotInitialized};
    add_world(ciranda_rank(world.get()), ciranda_size(world.get()));
  });
  is_begun = true;
  if (error != 0) {
    const std::string text = text_of(error);
    std::fprintf(stderr, "ciranda: %s\n", text.c_str());
    guarded("MPI_Init", [&] { break_world(text); });
  }
  return error;
}

void write(const std::string& text, std::size_t capacity, char* to, int* length) {
  const std::size_t n_bytes = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), n_bytes);
  to[n_bytes] = '\0';
  *length = static_cast<int>(n_bytes);
}

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace
}  // namespace ciranda::mpi

extern "C" {

using namespace ciranda::mpi;  // NOLINT(google-build-using-namespace)

CIRANDA_API int MPIABI_Init(int* /*argc*/, char*** /*argv*/) { return begin(); }

CIRANDA_API int MPIABI_Init_thread(int* /*argc*/, char*** /*argv*/, int /*required*/, int* provided) {
  if (provided != nullptr) *provided = kThreadMultiple;
  return begin();
}

// The process may continue to use the world: ciranda leaves it when Python ends.
CIRANDA_API int MPIABI_Finalize() {
  is_ended = true;
  return 0;
}

CIRANDA_API int MPIABI_Initialized(int* flag) {
  *flag = is_begun ? 1 : 0;
  return 0;
}

CIRANDA_API int MPIABI_Finalized(int* flag) {
  *flag = is_ended ? 1 : 0;
  return 0;
}

CIRANDA_API int MPIABI_Query_thread(int* provided) {
  *provided = kThreadMultiple;
  return 0;
}

// Always true: jaxlib makes communicators only on threads where this is true, and here every thread may.
CIRANDA_API int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return 0;
}

CIRANDA_API int MPIABI_Abort(Comm /*comm*/, int error) {
  std::fprintf(stderr, "ciranda: MPI_Abort with %d ends this process\n", error);
  std::_Exit(error == 0 ? 1 : error);
}

CIRANDA_API int MPIABI_Error_string(int error, char* text, int* length) {
  return guarded("MPI_Error_string", [&] { write(text_of(error), kMaxErrorString, text, length); });
}

CIRANDA_API int MPIABI_Error_class(int error, int* error_class) {
  *error_class = error;
  return 0;
}

CIRANDA_API int MPIABI_Get_version(int* version, int* subversion) {
  *version = 3;
  *subversion = 1;
  return 0;
}

CIRANDA_API int MPIABI_Get_library_version(char* text, int* length) {
  return guarded("MPI_Get_library_version",
                 [&] { write("ciranda, as far as jaxlib needs MPI", kMaxLibraryVersion, text, length); });
}

CIRANDA_API int MPIABI_Get_processor_name(char* text, int* length) {
  return guarded("MPI_Get_processor_name", [&] {
    std::string name(kMaxProcessorName, '\0');
    if (gethostname(name.data(), name.size() - 1) != 0) name = "unknown";
    write(name.c_str(), kMaxProcessorName, text, length);
  });
}

CIRANDA_API int MPIABI_Type_size(Datatype datatype, int* size) {
  return guarded("MPI_Type_size", [&] { *size = static_cast<int>(ciranda_dtype_size(dtype_of(datatype))); });
}

// Device memory is not supported.
CIRANDA_API int MPIXABI_Query_cuda_support() { return 0; }
CIRANDA_API int MPIXABI_Query_hip_support() { return 0; }
CIRANDA_API int MPIXABI_Query_rocm_support() { return 0; }
CIRANDA_API int MPIXABI_Query_ze_support() { return 0; }

CIRANDA_API double MPIABI_Wtime() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return seconds(now);
}

CIRANDA_API double MPIABI_Wtick() {
  timespec tick{};
  clock_getres(CLOCK_MONOTONIC, &tick);
  return seconds(tick);
}
}
