// symbols: finds the functions of a loaded framework by name. So one binary serves many versions of the framework, none
// of which is needed to compile it, and missing functions are reported when it is imported.
//
//   struct Symbols { TF_Tensor* (*new_tensor)(...); ... } symbols;
//   const std::string problem = native::find_symbols(library, "TensorFlow", version,
//                                                    {native::wanted("TF_NewTensor", symbols.new_tensor), ...});
//
// Threads: any; no state is kept.
// Failure: a text, which the binding raises when it is imported; "" on success.
//
// Called by own_world.hpp, mx_api.hpp, bindings/mxnet/plugin.cc, tf_api.hpp and xla.hpp.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>
#include <type_traits>

namespace ciranda::native {

// The name of a function, and where to store its address.
struct Wanted {
  const char* name;
  void** address;
};

template <typename Function>
Wanted wanted(const char* name, Function*& where) {
  static_assert(std::is_function_v<Function>, "a pointer to a function");
  // POSIX: the result of dlsym() fits a pointer to a function, written as a void*.
  return {name, reinterpret_cast<void**>(&where)};
}

// The handle of a loaded library, for dlsym(). Null if the library is not loaded; it is never loaded here. The handle
// need not be closed as long as the library stays loaded.
inline void* loaded_library(const char* name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

// Looks up all functions, and writes the address of each, or null. Returns an error that names the missing ones, or "".
inline std::string find_symbols(void* library, const std::string& framework, const std::string& version,
                                std::initializer_list<Wanted> all) {
  const std::string who = "framework " + framework + " version " + version;
  if (library == nullptr) return who + " is not loaded in this process";
  std::string missing;
  for (const Wanted& each : all) {
    *each.address = dlsym(library, each.name);
    if (*each.address == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(each.name);
  }
  return missing.empty() ? "" : who + " has no symbol " + missing;
}

}  // namespace ciranda::native
