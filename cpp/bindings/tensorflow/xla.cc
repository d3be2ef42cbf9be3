#include "bindings/tensorflow/xla.hpp"

#include <ciranda/table.h>

#include <charconv>
#include <ciranda/native/context.hpp>
#include <ciranda/native/looks.hpp>
#include <ciranda/native/symbols.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/tensorflow/attributes.hpp"
#include "bindings/tensorflow/rank_info.hpp"

namespace ciranda::tensorflow {
namespace {

// The layout of XlaCustomCallStatus in XLA's library, the same in all versions so far.
using CallStatus = std::optional<std::string>;

// --- the text that describes a call: numbers, each followed by a blank, and then the name

class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    const std::size_t end = rest_.find(' ');
    if (end == std::string_view::npos) {
      is_bad_ = true;
      return {};
    }
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return word;
  }
  template <typename Number>
  Number number() {
    const std::string_view word = next();
    Number value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) is_bad_ = true;
    return value;
  }
  std::string_view rest() const { return rest_; }
  bool is_bad() const { return is_bad_; }

 private:
  std::string_view rest_;
  bool is_bad_ = false;
};

struct Description {
  ciranda_collective collective = CIRANDA_ALLREDUCE;
  Attributes attributes;
  std::vector<ciranda_tensor> tensors;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::size_t> n_bytes;

  // Parses `text`. False if it is invalid.
  bool read(std::string_view text) {
    Words words(text);
    collective = words.number<ciranda_collective>();
    attributes.reduce_op = words.number<ciranda_reduce_op>();
    attributes.root_rank = words.number<std::int32_t>();
    attributes.prescale = words.number<double>();
    attributes.postscale = words.number<double>();
    attributes.process_set = words.number<std::uint64_t>();
    attributes.flags = words.number<std::uint32_t>();
    const auto n_tensors = words.number<std::size_t>();
    shapes.reserve(words.is_bad() ? 0 : n_tensors);
    for (std::size_t i = 0; i < n_tensors && !words.is_bad(); ++i) read_tensor(words);
    attributes.name = words.rest();
    return !words.is_bad();
  }

 private:
  void read_tensor(Words& words) {
    ciranda_tensor tensor{};
    tensor.dtype = words.number<ciranda_dtype>();
    tensor.ndim = words.number<std::int32_t>();
    std::vector<std::int64_t>& shape = shapes.emplace_back();
    std::size_t bytes = ciranda_dtype_size(tensor.dtype);
    for (std::int32_t i = 0; i < tensor.ndim && !words.is_bad(); ++i) {
      shape.push_back(words.number<std::int64_t>());
      bytes *= static_cast<std::size_t>(shape.back());
    }
    tensor.shape = shape.data();
    tensors.push_back(tensor);
    n_bytes.push_back(bytes);
  }
};

// --- the functions that XLA calls: out[0] and in[0] are tokens, which order the calls

void fail(const Description& what, void** out, CallStatus* status, const std::string& message) {
  for (std::size_t i = 0; i < what.tensors.size(); ++i) std::memset(out[i + 1], 0xff, what.n_bytes[i]);
  *status = message;
}

void run_collective(void* outputs, const void** in, const char* opaque, std::size_t opaque_len, CallStatus* status) {
  auto** const out = static_cast<void**>(outputs);
  std::memset(out[0], 0, sizeof(std::int32_t));
  Description what;
  if (!what.read({opaque, opaque_len})) {
    *status = "Internal: ciranda.tensorflow: a compiled call cannot be read";
    return;
  }
  for (std::size_t i = 0; i < what.tensors.size(); ++i) {
    what.tensors[i].input = in[i + 1];
    what.tensors[i].output = out[i + 1];
  }
  const native::Context world;
  if (!world) return fail(what, out, status, std::string("InvalidArgument: ") + native::kNotInitialized);
  ciranda_request request = what.attributes.request(what.collective);
  request.flags &= ~static_cast<std::uint32_t>(CIRANDA_REQUEST_DIRECT_CALLBACK);
  request.tensors = what.tensors.data();
  request.tensors_count = what.tensors.size();
  ciranda_operation* handle = nullptr;
  const ciranda_status ended = ciranda_run(world.get(), &request, &handle);
  const native::Operation operation(handle);
  if (ended == CIRANDA_OK) return;
  fail(what, out, status, std::string(ciranda_status_name(ended)) + ": " + native::failure_of(operation));
}

void run_rank_info(void* outputs, const void** /*in*/, const char* opaque, std::size_t opaque_len, CallStatus* status) {
  auto** const out = static_cast<void**>(outputs);
  Words words({opaque, opaque_len});
  const auto what = words.number<std::int64_t>();
  const auto process_set = words.number<std::uint32_t>();
  const Found found = find_rank_info(static_cast<RankInfo>(what), process_set);
  std::memset(out[0], 0, sizeof(std::int32_t));
  std::memcpy(out[1], &found.number, sizeof found.number);
  if (!found.problem.empty()) *status = found.problem;
}

void run_look(void* outputs, const void** in, const char* opaque, std::size_t opaque_len, CallStatus* status) {
  auto** const out = static_cast<void**>(outputs);
  Words words({opaque, opaque_len});
  const auto count = words.number<std::size_t>();
  std::memset(out[0], 0, sizeof(std::int32_t));
  std::memset(out[1], 0, sizeof(std::int32_t));
  const native::Looks::Outcome seen =
      native::looks().show(std::string(words.rest()), std::vector<const void*>(in + 1, in + 1 + count));
  if (seen.status != CIRANDA_OK) *status = std::string(ciranda_status_name(seen.status)) + ": " + seen.message;
}

// --- XLA's registry

struct Registry;
struct XlaApi {
  Registry* (*global)();
  void (*enter)(Registry*, const std::string& name, void* address, const std::string& platform);
  std::optional<std::string_view> (*message_of)(const CallStatus*);
};

bool has_expected_status(const XlaApi& xla) {
  const CallStatus good;
  const CallStatus bad = "a message that is too long to be kept in the string itself";
  return !xla.message_of(&good) && xla.message_of(&bad) == std::string_view(*bad);
}

using Target = void (*)(void*, const void**, const char*, std::size_t, CallStatus*);

void enter(const XlaApi& xla, const char* name, Target target) {
  xla.enter(xla.global(), name, reinterpret_cast<void*>(target), "Host");
}

}  // namespace

std::string register_xla_calls(const std::string& version) {
  XlaApi xla{};
  const std::string problem = native::find_symbols(
      native::loaded_library("libtensorflow_cc.so.2"), "TensorFlow (XLA)", version,
      {
          native::wanted("_ZN3xla24CustomCallTargetRegistry6GlobalEv", xla.global),
          native::wanted("_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
                         "traitsIcESaIcEEEPvS8_",
                         xla.enter),
          native::wanted("_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_", xla.message_of),
      });
  if (!problem.empty()) return problem;
  if (!has_expected_status(xla)) return "framework TensorFlow (XLA) version " + version + " has another call status";
  enter(xla, "ciranda_collective", &run_collective);
  enter(xla, "ciranda_place", &run_rank_info);
  enter(xla, "ciranda_look", &run_look);
  return "";
}

}  // namespace ciranda::tensorflow
