#include "bindings/mpi/errors.hpp"

#include <cstddef>
#include <cstdio>
#include <deque>
#include <mutex>
#include <set>

#include "bindings/mpi/abi.hpp"
#include "bindings/mpi/names.hpp"

namespace ciranda::mpi {
namespace {

constexpr std::size_t kKept = 4096;

struct Texts {
  std::mutex mutex;
  std::deque<std::string> kept;
  int first = kFirstError;  // the number of kept.front()
  std::set<std::string> told;
};

// Never freed: threads of XLA may still run when the process ends.
Texts& texts() {
  static auto* const all = new Texts;
  return *all;
}

}  // namespace

int error_of(std::string text) {
  Texts& all = texts();
  const std::lock_guard lock(all.mutex);
  all.kept.push_back(std::move(text));
  if (all.kept.size() > kKept) {
    all.kept.pop_front();
    ++all.first;
  }
  return all.first + static_cast<int>(all.kept.size()) - 1;
}

std::string text_of(int error) {
  if (error == kSuccess) return "no error";
  Texts& all = texts();
  const std::lock_guard lock(all.mutex);
  const std::ptrdiff_t index = static_cast<std::ptrdiff_t>(error) - all.first;
  if (index >= 0 && index < std::ssize(all.kept)) return all.kept[static_cast<std::size_t>(index)];
  return "unknown error " + std::to_string(error);
}

int not_offered(const char* name) noexcept {
  try {
    const std::string text =
        std::string(name) +
        " is not offered by ciranda, which has only the functions of MPI that jaxlib's collectives need";
    Texts& all = texts();
    bool is_new = false;
    {
      const std::lock_guard lock(all.mutex);
      is_new = all.told.insert(name).second;
    }
    if (is_new) std::fprintf(stderr, "ciranda: %s\n", text.c_str());
    return error_of(text);
  } catch (...) {
    return 1;
  }
}

}  // namespace ciranda::mpi

// NOLINTBEGIN(cert-dcl37-c,cppcoreguidelines-macro-usage): the names are given
#define CIRANDA_MPI_NOT_OFFERED(name) \
  CIRANDA_API int MPIABI_##name() { return ciranda::mpi::not_offered("MPI_" #name); }

extern "C" {
CIRANDA_MPI_FUNCTIONS_NOT_OFFERED(CIRANDA_MPI_NOT_OFFERED)
}
// NOLINTEND(cert-dcl37-c,cppcoreguidelines-macro-usage)
