#include "bindings/fake_python.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace ciranda::fake_python {
namespace {

struct Object {
  Answer value;
};

struct State {
  std::function<Answer()> join;
  int n_references = 0;
  bool is_raised = false;
  int n_locks = 0;
};

State& state() {
  static State only;
  return only;
}

Object* made(Answer value) {
  ++state().n_references;
  return new Object{std::move(value)};
}

}  // namespace

void on_join(std::function<Answer()> join) { state().join = std::move(join); }
int references_left() { return state().n_references; }
bool is_raised() { return state().is_raised; }
int locks_held() { return state().n_locks; }

}  // namespace ciranda::fake_python

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

using namespace ciranda::fake_python;  // NOLINT(google-build-using-namespace)

EXPORTED int PyGILState_Ensure() { return ++state().n_locks; }
EXPORTED void PyGILState_Release(int /*state*/) { --state().n_locks; }

EXPORTED Object* PyImport_ImportModule(const char* name) {
  if (std::strcmp(name, "ciranda._jax_native") == 0) return made(nullptr);
  state().is_raised = true;
  return nullptr;
}

EXPORTED Object* PyObject_CallMethod(Object* module, const char* name, const char* /*format*/, ...) {
  if (module != nullptr && std::strcmp(name, "join") == 0) {
    Answer answer = state().join();
    if (!std::holds_alternative<Raises>(answer)) return made(std::move(answer));
  }
  state().is_raised = true;
  return nullptr;
}

EXPORTED void* PyLong_AsVoidPtr(Object* object) { return const_cast<void*>(std::get<const void*>(object->value)); }

EXPORTED const char* PyUnicode_AsUTF8AndSize(Object* object, std::ptrdiff_t* /*size*/) {
  if (const auto* const text = std::get_if<std::string>(&object->value)) return text->c_str();
  state().is_raised = true;  // a TypeError
  return nullptr;
}

EXPORTED void PyErr_Print() {
  std::fputs("Traceback: what Python prints\n", stderr);
  state().is_raised = false;
}
EXPORTED void PyErr_Clear() { state().is_raised = false; }

EXPORTED void Py_DecRef(Object* object) {
  if (object == nullptr) return;
  --state().n_references;
  delete object;
}
}
