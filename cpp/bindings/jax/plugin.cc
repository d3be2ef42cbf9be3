// The shared library: its handlers are registered with XLA by src/ciranda/jax/_plugin.py, through JAX.
#include <ciranda/native/call.hpp>
#include <ciranda/native/looks.hpp>
#include <ciranda/native/plugin.hpp>

#include "bindings/jax/collective.hpp"
#include "bindings/jax/gpu_collective.hpp"
#include "bindings/jax/look.hpp"

CIRANDA_DEFINE_TABLE
CIRANDA_DEFINE_LOOKS

ciranda_status ciranda_plugin_open(const ciranda_table* table, const char*, char* message, size_t message_capacity) {
  return ciranda_use_table(table, message, message_capacity);
}

int64_t ciranda_plugin_live_calls() { return ciranda::native::live_calls(); }

extern "C" {

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_collective(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::run_collective(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_size(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::get_size(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_gpu_collective(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::run_gpu_collective(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_gpu_size(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::get_gpu_size(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_gpu_look(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::look_at_gpu(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_look(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::look(frame);
}

CIRANDA_API ciranda::jax::ffi::Error* ciranda_jax_nothing(ciranda::jax::ffi::Frame* frame) {
  return ciranda::jax::do_nothing(frame);
}
}
