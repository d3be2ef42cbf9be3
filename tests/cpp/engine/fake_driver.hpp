// The fake driver's own functions, for tests of the engine, whose own code has loaded it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace ciranda::testing {

template <typename Function>
Function* of_fake(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
}

// See tests/fakes/settings.hpp for the names.
inline void set_fake(const char* name, const std::string& value) {
  of_fake<void(const char*, const char*)>("fake_cuda_set")(name, value.c_str());
}

// How often a function of the driver was called.
inline std::uint64_t n_fake_calls(const char* call) {
  return of_fake<std::uint64_t(const char*)>("fake_cuda_n_calls_of")(call);
}

}  // namespace ciranda::testing
