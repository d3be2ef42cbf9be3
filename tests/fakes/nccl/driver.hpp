// The fake driver, as the fake NCCL finds it: at run time, as the real ones do.
//
// Threads: any.
#pragma once

#include <dlfcn.h>

#include "library_kernel.hpp"

namespace ciranda::fakes {

// Null: the process has no fake driver.
template <typename Function>
Function* in_driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

inline bool is_over() {
  static auto* const ask = in_driver<decltype(fake_cuda_is_over)>("fake_cuda_is_over");
  return ask();
}

}  // namespace ciranda::fakes
