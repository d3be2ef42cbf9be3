#include "bindings/mpi/own_world.hpp"

#include <ciranda/table.h>
#include <dlfcn.h>

#include <array>
#include <ciranda/native/symbols.hpp>
#include <cstddef>
#include <string>

#include "bindings/mpi/errors.hpp"

CIRANDA_DEFINE_TABLE

namespace ciranda::mpi {
namespace {

struct Object;  // PyObject

// Functions of Python's stable ABI, found in the process: this library is not linked with Python.
struct Python {
  int (*ensure)();
  void (*release)(int);
  Object* (*import_module)(const char*);
  Object* (*call_method)(Object*, const char*, const char*, ...);
  void* (*as_address)(Object*);
  const char* (*as_text)(Object*, std::ptrdiff_t*);
  void (*print_error)();
  void (*clear_error)();
  void (*release_reference)(Object*);
};

Python python_here() {
  using native::wanted;
  Python python{};
  const std::string problem = native::find_symbols(
      dlopen(nullptr, RTLD_LAZY), "Python", "3",
      {wanted("PyGILState_Ensure", python.ensure), wanted("PyGILState_Release", python.release),
       wanted("PyImport_ImportModule", python.import_module), wanted("PyObject_CallMethod", python.call_method),
       wanted("PyLong_AsVoidPtr", python.as_address), wanted("PyUnicode_AsUTF8AndSize", python.as_text),
       wanted("PyErr_Print", python.print_error), wanted("PyErr_Clear", python.clear_error),
       wanted("Py_DecRef", python.release_reference)});
  if (!problem.empty()) throw Failure{problem};
  return python;
}

class Lock {
 public:
  explicit Lock(const Python& python) : python_(python), state_(python.ensure()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { python_.release(state_); }

 private:
  const Python& python_;
  const int state_;
};

// Joins the world by Python's join(), and returns the engine's table. If join() returns a str, throws it as Failure.
const ciranda_table* joined(const Python& python) {
  const Lock lock(python);
  Object* const module = python.import_module("ciranda._jax_native");
  Object* const answer = module == nullptr ? nullptr : python.call_method(module, "join", nullptr);
  python.release_reference(module);
  if (answer == nullptr) {
    python.print_error();
    throw Failure{"the module ciranda cannot be used in this process: standard error says why"};
  }
  const char* const text = python.as_text(answer, nullptr);
  if (text != nullptr) {
    const std::string why = text;
    python.release_reference(answer);
    throw Failure{why};
  }
  python.clear_error();
  void* const address = python.as_address(answer);
  python.release_reference(answer);
  return static_cast<const ciranda_table*>(address);
}

}  // namespace

void join_world() {
  const ciranda_table* const table = joined(python_here());
  std::array<char, 512> message{};
  if (ciranda_use_table(table, message.data(), message.size()) != CIRANDA_OK) throw Failure{message.data()};
}

}  // namespace ciranda::mpi
