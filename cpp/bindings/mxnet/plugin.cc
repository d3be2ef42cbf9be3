// The shared library that `ciranda.mxnet` opens.
#include <algorithm>
#include <ciranda/native/call.hpp>
#include <ciranda/native/plugin.hpp>
#include <ciranda/native/symbols.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "bindings/mxnet/failed_results.hpp"
#include "bindings/mxnet/held.hpp"
#include "bindings/mxnet/last_error.hpp"
#include "bindings/mxnet/lent.hpp"
#include "bindings/mxnet/mx_api.hpp"
#include "bindings/mxnet/push.hpp"

CIRANDA_DEFINE_TABLE

namespace {

void copy_out(const std::string& text, char* message, size_t capacity) {
  if (capacity > 0) std::snprintf(message, capacity, "%s", text.c_str());
}

// Returns the result of `body`; if it throws, returns `failed`, with the reason in `message`. C has no exceptions.
template <typename Body>
int32_t guarded(int32_t failed, char* message, size_t capacity, Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    if (capacity > 0) std::snprintf(message, capacity, "%s", error.what());
  } catch (...) {
    if (capacity > 0) std::snprintf(message, capacity, "%s", "an exception of unknown type");
  }
  return failed;
}

}  // namespace

ciranda_status ciranda_plugin_open(const ciranda_table* table, const char* framework_version, char* message,
                                   size_t message_capacity) {
  const ciranda_status status = ciranda_use_table(table, message, message_capacity);
  if (status != CIRANDA_OK) return status;
  void* const library = ciranda::native::loaded_library("libmxnet.so");
  const std::string problem = ciranda::mxnet::find_mx_api(library, framework_version);
  copy_out(problem, message, message_capacity);
  return problem.empty() ? CIRANDA_OK : CIRANDA_INVALID_ARGUMENT;
}

int64_t ciranda_plugin_live_calls() { return ciranda::native::live_calls(); }

extern "C" {

// Pushes a collective on `count` arrays. `flags`: 1: an average divides by all ranks; 2: the call is chained. Returns 0
// on success; 1 if the call is invalid; 2 if it has failed (only with MXNet's naive engine, which runs it at once); 3
// after an exception, such as for lack of memory. Unless 0, `message` has the reason.
CIRANDA_API int32_t ciranda_mxnet_push(int32_t collective, void** inputs, void** outputs, int32_t count,
                                       const char* name, int32_t op, int32_t root, double prescale, double postscale,
                                       uint64_t process_set, uint32_t flags, int32_t priority, void* carrier,
                                       char* message, size_t message_capacity) {
  return guarded(3, message, message_capacity, [&] {
    if (count < 1) {
      copy_out("at least one array is needed, not " + std::to_string(count), message, message_capacity);
      return 1;
    }
    auto running = std::make_unique<ciranda::mxnet::Running>(ciranda::mxnet::Asked{
        name, collective, op, root, priority, process_set, (flags & 1) != 0, (flags & 2) != 0, prescale, postscale});
    std::string report;
    std::string problem = running->prepare(inputs, outputs, static_cast<size_t>(count), carrier);
    if (problem.empty()) problem = ciranda::mxnet::push(std::move(running), &report);
    copy_out(problem.empty() ? report : problem, message, message_capacity);
    return problem.empty() ? (report.empty() ? 0 : 2) : 1;
  });
}

// The number of names of calls that are in MXNet's queues or pending.
CIRANDA_API size_t ciranda_mxnet_pushed_names() { return ciranda::mxnet::n_pushed_names(); }

// Waits for arrays, and protects them from writes until `*held` is passed to ciranda_mxnet_let_go(). Writes their
// addresses to `addresses`. Returns 0; 1 on failure, with the reason in `message`; 2 if an array has failed.
CIRANDA_API int32_t ciranda_mxnet_hold(void** arrays, int32_t count, void** addresses, void** held, char* message,
                                       size_t message_capacity) {
  return guarded(1, message, message_capacity, [&] {
    std::string problem;
    auto taken = ciranda::mxnet::Held::take({arrays, static_cast<size_t>(std::max(count, 0))}, problem);
    copy_out(problem, message, message_capacity);
    if (taken == nullptr) return problem.empty() ? 2 : 1;
    std::copy(taken->data().begin(), taken->data().end(), addresses);
    *held = taken.release();
    return 0;
  });
}

CIRANDA_API void ciranda_mxnet_let_go(void* held) { delete static_cast<ciranda::mxnet::Held*>(held); }

// Creates MXNet's *array in memory that belongs to `owner`. Returns 0, or 1 with MXGetLastError().
CIRANDA_API int32_t ciranda_mxnet_lend(void* data, const int64_t* shape, int32_t ndim, int32_t dtype, void* owner,
                                       void** array) {
  return guarded(1, nullptr, 0, [&] {
    *array = ciranda::mxnet::lend(data, {shape, static_cast<size_t>(std::max(ndim, 0))}, dtype, owner).release();
    return *array == nullptr ? 1 : 0;
  });
}

// Fetches owners whose memory MXNet has released, each once; returns their number.
CIRANDA_API size_t ciranda_mxnet_fetch_given_back(void** owners, size_t capacity) {
  return ciranda::mxnet::fetch_given_back({owners, capacity});
}

// Records that MXNet has raised an error with this text ("": all errors), and, unless null, that it concerns `array`.
CIRANDA_API void ciranda_mxnet_raised(void* array, const char* text) {
  (void)guarded(1, nullptr, 0, [&] {
    ciranda::mxnet::failed_results().raised(text);
    if (array != nullptr) ciranda::mxnet::failed_results().add_raised(array, text);
    return 0;
  });
}

// Returns 1 if the array has failed, with the error in `message`; else 0. REQUIRES: no operation writes the array.
CIRANDA_API int32_t ciranda_mxnet_failure_of(void* array, char* message, size_t message_capacity) {
  return guarded(0, nullptr, 0, [&] {
    const std::string failure = ciranda::mxnet::failed_results().message_of(array);
    copy_out(failure, message, message_capacity);
    return failure.empty() ? 0 : 1;
  });
}

// Records the error of a call that is not made by this library.
CIRANDA_API void ciranda_mxnet_note_error(ciranda_status status, const char* message) {
  (void)guarded(1, nullptr, 0, [&] {
    ciranda::mxnet::last_error().note(status, message);
    return 0;
  });
}

// The status and the message of the call that failed last.
CIRANDA_API ciranda_status ciranda_mxnet_last_error(char* message, size_t message_capacity) {
  return guarded(CIRANDA_INTERNAL, message, message_capacity, [&] {
    const auto [status, text] = ciranda::mxnet::last_error().get();
    copy_out(text, message, message_capacity);
    return status;
  });
}
}
