// The shared library that `ciranda.mxnet` opens.
#include <algorithm>
#include <ciranda/native/call.hpp>
#include <ciranda/native/plugin.hpp>
#include <ciranda/native/symbols.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "bindings/mxnet/last_error.hpp"
#include "bindings/mxnet/lent.hpp"
#include "bindings/mxnet/mx_api.hpp"
#include "bindings/mxnet/push.hpp"

CIRANDA_DEFINE_TABLE

namespace {

void copy_out(const std::string& text, char* message, size_t capacity) {
  if (capacity > 0) std::snprintf(message, capacity, "%s", text.c_str());
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

// Pushes a collective on `count` arrays; `flags`: 1, an average divides by all; 2, it is chained. 0; or 1, and
// `message` says what is wrong with the call; or 2: it has failed with `message`, which only MXNet's naive engine knows
// at once.
CIRANDA_API int32_t ciranda_mxnet_push(int32_t collective, void** inputs, void** outputs, int32_t count,
                                       const char* name, int32_t op, int32_t root, double prescale, double postscale,
                                       uint64_t process_set, uint32_t flags, int32_t priority, void* carrier,
                                       char* message, size_t message_capacity) {
  auto running = std::make_unique<ciranda::mxnet::Running>(ciranda::mxnet::Asked{
      name, collective, op, root, priority, process_set, (flags & 1) != 0, (flags & 2) != 0, prescale, postscale});
  std::string report;
  std::string problem = running->prepare(inputs, outputs, static_cast<size_t>(std::max(count, 0)), carrier);
  if (problem.empty()) problem = ciranda::mxnet::push(std::move(running), &report);
  copy_out(problem.empty() ? report : problem, message, message_capacity);
  return problem.empty() ? (report.empty() ? 0 : 2) : 1;
}

// Makes *array, of MXNet's, in memory that belongs to `owner`. 0, or 1 with MXGetLastError().
CIRANDA_API int32_t ciranda_mxnet_lend(void* data, const int64_t* shape, int32_t ndim, int32_t dtype, void* owner,
                                       void** array) {
  *array = ciranda::mxnet::lend(data, {shape, static_cast<size_t>(std::max(ndim, 0))}, dtype, owner).release();
  return *array == nullptr ? 1 : 0;
}

// Owners whose memory MXNet does not need any more; returns how many of them. What is fetched is not told again.
CIRANDA_API size_t ciranda_mxnet_fetch_given_back(void** owners, size_t capacity) {
  return ciranda::mxnet::fetch_given_back({owners, capacity});
}

// The status of the call that has failed last, and its message.
CIRANDA_API ciranda_status ciranda_mxnet_last_error(char* message, size_t message_capacity) {
  const auto [status, text] = ciranda::mxnet::last_error().get();
  copy_out(text, message, message_capacity);
  return status;
}
}
