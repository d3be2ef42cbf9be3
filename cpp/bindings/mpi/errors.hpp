// errors: MPI's errors are numbers, whose text the caller reads later (MPI_Error_string).
//
// Threads: any.
//
// Called by calls.hpp, collectives.cc, Communicator, communicators.cc, handles.hpp, messages.cc, own_world.hpp and
// session.cc.
#pragma once

#include <exception>
#include <string>

namespace ciranda::mpi {

// The reason of an MPI function's failure.
struct Failure {
  std::string text;
};

// The number of that text. The last 4096 texts are kept.
int error_of(std::string text);

// "unknown error ..." for a number that error_of() has not returned, or whose text is no longer kept.
std::string text_of(int error);

// Returns the error of calling a function that is not implemented. Also reports it on standard error (once for each
// name), as jaxlib does not read all errors.
int not_offered(const char* name) noexcept;

// Runs `act`. Returns MPI_SUCCESS, or, if `act` throws, an error whose text begins with the function's name.
template <typename Act>
int guarded(const char* name, const Act& act) noexcept {
  try {
    try {
      act();
      return 0;
    } catch (const Failure& failure) {
      return error_of(std::string(name) + ": " + failure.text);
    } catch (const std::exception& error) {
      return error_of(std::string(name) + ": " + error.what());
    }
  } catch (...) {
    return 1;  // no memory for the text either
  }
}

}  // namespace ciranda::mpi
