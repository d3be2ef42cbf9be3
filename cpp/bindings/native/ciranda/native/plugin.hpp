// plugin: the functions that the shared library of every binding exports. `ciranda._frameworks.plugin` loads and opens
// the library; its other exports are private to the binding's Python code.
//
// One file of the library has CIRANDA_DEFINE_TABLE, and defines these functions.
//
// Called by Python, through ctypes; defined in bindings/jax/plugin.cc, bindings/mxnet/plugin.cc,
// bindings/tensorflow/plugin.cc and bindings/paddle/ops.cc; the thread that imports the framework's module, without the
// GIL.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>

extern "C" {

// Takes the engine's functions from `table`, finds the framework's functions, and registers with the framework; once in
// a process. `framework_version` is for messages. Returns CIRANDA_OK, or an error with the reason in `message`, cut to
// `message_capacity` bytes including the final NUL.
CIRANDA_API ciranda_status ciranda_plugin_open(const ciranda_table* table, const char* framework_version, char* message,
                                               size_t message_capacity);

// The number of calls that have not ended, whose tensors are still held.
CIRANDA_API int64_t ciranda_plugin_live_calls();
}
