// CIRANDA_EXPORTED: marks what bindings/python/ calls of the engine. A wheel has the engine once, in libciranda, and
// Python's extension, a library of its own, links it. libciranda exports the marked functions for the extension of the
// same build, under a version that no other build has (cmake/ciranda_wheel.map.in). They are no interface: without
// Python's extension they are hidden, as all others are.
//
// Used by all layers; a macro.
#pragma once

#define CIRANDA_EXPORTED __attribute__((visibility("default")))
