#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <string>
#include <vector>

#include "capi/own_table.hpp"
#include "capi/translate.hpp"
#include "capi/worlds.hpp"
#include "ciranda/table.h"

namespace ciranda::capi {
namespace {

// The files of all objects that this process has loaded; "" is the program.
std::vector<std::string> loaded_objects() {
  std::vector<std::string> names;
  const auto add = [](dl_phdr_info* object, std::size_t, void* data) {
    const std::string name = object->dlpi_name == nullptr ? "" : object->dlpi_name;
    const bool is_file = name.empty() || name.find('/') != std::string::npos;  // not the kernel's own object (vDSO)
    if (is_file) static_cast<std::vector<std::string>*>(data)->push_back(name);
    return 0;
  };
  dl_iterate_phdr(add, &names);
  return names;
}

using GetTable = const ciranda_table* (*)();

// Null if neither the object nor one that it needs is a copy of the library.
GetTable find_in(const std::string& object) {
  void* const handle = dlopen(object.empty() ? nullptr : object.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = dlsym(handle, "ciranda_get_table");
  dlclose(handle);  // it was loaded before, and stays
  return reinterpret_cast<GetTable>(found);
}

bool is_in_a_world(const ciranda_table& table) {
  const auto count = field_of(table, &ciranda_table::contexts_count);
  return count != nullptr && count() > 0;
}

std::string file_of(GetTable function) {
  Dl_info info{};
  const bool is_known = dladdr(reinterpret_cast<void*>(function), &info) != 0 && info.dli_fname != nullptr;
  return is_known ? info.dli_fname : "another file";
}

}  // namespace

Status refuse_other_engines() {
  const ciranda_table* const own = &own_table();
  for (const std::string& object : loaded_objects()) {
    const GetTable get_table = find_in(object);
    const ciranda_table* const other = get_table == nullptr ? own : get_table();
    if (other == own || other == nullptr || !is_in_a_world(*other)) continue;
    return Status::invalid_argument(
        "this process has another engine, in " + file_of(get_table) +
        ", which has joined a world: two engines in a process would wait for each other's ranks for ever. Use that "
        "one, by the table of its functions (in Python: ciranda.get_c_table()), or shut it down first.");
  }
  return Status::ok_status();
}

}  // namespace ciranda::capi
