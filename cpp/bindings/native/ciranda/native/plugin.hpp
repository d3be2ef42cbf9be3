// plugin: the functions that the shared library of a binding exports. `ciranda._frameworks.plugin` loads and opens it;
// its other exports are private to the binding's Python.
//
// One file of it has CIRANDA_DEFINE_TABLE, and defines these.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>

extern "C" {

// Takes the engine's functions, finds the framework's and registers with it; once in a process. `framework_version` is
// for messages. CIRANDA_OK, or the reason in `message`, cut to `message_capacity` bytes including the final NUL.
CIRANDA_API ciranda_status ciranda_plugin_open(const ciranda_table* table, const char* framework_version, char* message,
                                               size_t message_capacity);

// The number of calls that have not ended, whose tensors are still held.
CIRANDA_API int64_t ciranda_plugin_live_calls();
}
