#include "capi/translate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace ciranda::capi {
namespace {

// Copies the part of a caller's struct that this library knows; fields that an older version lacks are zero.
template <typename Struct>
Result<Struct> read_struct(const void* from, std::size_t n_bytes, std::size_t n_bytes_in_version_1, const char* what) {
  if (n_bytes < n_bytes_in_version_1) {
    return Status::invalid_argument(std::string(what) + ": its size is " + std::to_string(n_bytes) +
                                    " bytes, less than the " + std::to_string(n_bytes_in_version_1) +
                                    " of version 1; start from its *_INIT macro");
  }
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(from), n_bytes);
  const std::size_t n_known = std::min(n_bytes, sizeof(Struct));
  const auto unknown = bytes.subspan(n_known);
  if (std::any_of(unknown.begin(), unknown.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Status::invalid_argument(std::string(what) + ": it uses a field of a newer version than this library's, " +
                                    std::to_string(CIRANDA_ABI_VERSION));
  }
  Struct known{};
  std::memcpy(&known, bytes.data(), n_known);
  return known;
}

template <typename Enum>
std::optional<Enum> from_abi(std::int32_t value, std::optional<Enum> (*from_wire)(std::uint8_t)) {
  if (value < 0 || value > 255) return std::nullopt;
  return from_wire(static_cast<std::uint8_t>(value));
}

Status out_of_enum(const char* field, std::int32_t value) {
  return Status::invalid_argument(std::string("ciranda_request: ") + field + " has no value " + std::to_string(value));
}

Status translate(const ciranda_tensor& tensor, CallTensor& to) {
  const auto dtype = from_abi(tensor.dtype, data_type_from_wire);
  if (!dtype) return out_of_enum("dtype", tensor.dtype);
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > kMaxDimensions) {
    return Status::invalid_argument("ciranda_tensor: ndim is " + std::to_string(tensor.ndim) + ", not 0 to " +
                                    std::to_string(kMaxDimensions));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) return Status::invalid_argument("ciranda_tensor: shape is NULL");
  to.dtype = *dtype;
  to.shape = {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
  to.memory.input = static_cast<const std::byte*>(tensor.input);
  to.memory.output = static_cast<std::byte*>(tensor.output);
  if (tensor.device_type != 0 && tensor.device_type != CIRANDA_HOST) {
    to.memory.place = {static_cast<DeviceType>(tensor.device_type), tensor.device, tensor.stream};
  }
  return Status::ok_status();
}

Status translate_tensors(const ciranda_request& request, TranslatedCall& to) {
  const std::size_t n_tensors = request.tensors_count;
  to.tensors.resize(n_tensors);
  const auto* next = reinterpret_cast<const std::byte*>(request.tensors);
  for (std::size_t i = 0; i < n_tensors; ++i, next += request.tensor_struct_size) {
    const auto tensor = read_struct<ciranda_tensor>(next, request.tensor_struct_size, offsetof(ciranda_tensor, splits),
                                                    "ciranda_tensor");
    if (!tensor.ok()) return tensor.status();
    if (Status status = translate(tensor.value(), to.tensors[i]); !status.ok()) return status;
    const auto [splits, n_splits] = std::pair(tensor.value().splits, tensor.value().splits_count);
    if (splits == nullptr) continue;
    to.splits.resize(n_tensors);
    to.splits[i].assign(splits, splits + n_splits);
  }
  to.call.tensors = to.tensors;
  to.call.splits = to.splits;
  return Status::ok_status();
}

// Expresses one meaning in one way, so that more calls can be repeated: an omitted input is the output, and memory in
// which the result does not fit is none.
void simplify(const Call& call, TensorMemory& memory) {
  const CollectiveInfo& facts = info(call.collective);
  if (memory.input == nullptr && !facts.may_lack_output) memory.input = memory.output;
  const bool is_unused = facts.output == Output::kMayHaveRoom && !call.has_room_for_all;
  if (is_unused && memory.input != nullptr) memory.output = nullptr;
}

Status add_tensors(const ciranda_request& request, TranslatedCall& to) {
  const std::size_t n_tensors = request.tensors_count;
  if (n_tensors == 0) return Status::ok_status();
  if (request.tensors == nullptr) return Status::invalid_argument("ciranda_request: tensors is NULL");
  if (n_tensors > kMaxTensorsPerRequest) {
    return Status::invalid_argument("ciranda_request: " + std::to_string(n_tensors) + " tensors, more than " +
                                    std::to_string(kMaxTensorsPerRequest));
  }
  const bool is_simple =
      n_tensors == 1 && request.tensor_struct_size == sizeof(ciranda_tensor) && request.tensors->splits == nullptr;
  if (!is_simple) return translate_tensors(request, to);
  to.call.tensors = {&to.tensor, 1};
  Status status = translate(*request.tensors, to.tensor);
  simplify(to.call, to.tensor.memory);
  return status;
}

}  // namespace

Result<Options> translate(const ciranda_options* options) {
  Options to;
  if (options == nullptr) return to;
  const auto known =
      read_struct<ciranda_options>(options, options->struct_size, sizeof(ciranda_options), "ciranda_options");
  if (!known.ok()) return known.status();
  const ciranda_options& from = known.value();
  if (from.settings_count > 0 && from.settings == nullptr) {
    return Status::invalid_argument("ciranda_options: settings is NULL");
  }
  for (const ciranda_setting& setting : std::span(from.settings, from.settings_count)) {
    if (setting.name == nullptr || setting.value == nullptr) {
      return Status::invalid_argument("ciranda_options: a setting's name or value is NULL");
    }
    to.settings.emplace_back(setting.name, setting.value);
  }
  to.epoch = from.epoch;
  return to;
}

namespace {

Hints hints_of(const ciranda_request& request) {
  Hints hints;
  hints.is_deferrable = (request.flags & CIRANDA_REQUEST_DEFERRABLE) != 0;
  hints.is_awaited = (request.flags & CIRANDA_REQUEST_AWAITED) != 0;
  hints.calls_back_directly = (request.flags & CIRANDA_REQUEST_DIRECT_CALLBACK) != 0;
  return hints;
}

Terms terms_of(const ciranda_request& request, Collective collective, ReduceOp op) {
  const bool divides_by_all = (request.flags & CIRANDA_REQUEST_DIVIDE_BY_ALL) != 0;
  return used({collective, op, request.root, request.prescale, request.postscale, divides_by_all});
}

// REQUIRES: a request of this version.
Status translate_known(const ciranda_request& from, TranslatedCall& to) {
  const auto collective = from_abi(from.collective, collective_from_wire);
  if (!collective) return out_of_enum("collective", from.collective);
  const auto op = from_abi(from.op, reduce_op_from_wire);
  if (!op) return out_of_enum("op", from.op);
  constexpr std::uint32_t kKnownFlags = CIRANDA_REQUEST_DEFERRABLE | CIRANDA_REQUEST_AWAITED |
                                        CIRANDA_REQUEST_DIVIDE_BY_ALL | CIRANDA_REQUEST_HAS_ROOM |
                                        CIRANDA_REQUEST_DIRECT_CALLBACK | CIRANDA_REQUEST_NEEDS_ALL;
  if ((from.flags & ~kKnownFlags) != 0) {
    return Status::invalid_argument("ciranda_request: flags has a bit that this library does not know");
  }
  if (from.arguments_count > kMaxTensorsPerRequest || (from.arguments_count > 0 && from.arguments == nullptr)) {
    return Status::invalid_argument("ciranda_request: arguments is NULL, or there are too many");
  }
  const CollectiveInfo& facts = info(*collective);
  Call& call = to.call;
  static_cast<Terms&>(call) = terms_of(from, *collective, *op);
  call.name = from.name == nullptr ? std::string_view() : from.name;
  call.is_cacheable = from.name != nullptr;
  call.has_room_for_all = facts.output == Output::kMayHaveRoom && (from.flags & CIRANDA_REQUEST_HAS_ROOM) != 0;
  call.needs_all = (from.flags & CIRANDA_REQUEST_NEEDS_ALL) != 0;
  call.arguments = {from.arguments, from.arguments_count};
  call.process_set = from.process_set;
  call.lane = from.lane;
  call.priority = from.priority;
  call.hints = hints_of(from);
  if (from.weight != nullptr) call.weight = *from.weight;
  return add_tensors(from, to);
}

}  // namespace

Status translate(const ciranda_request& request, TranslatedCall& to) {
  if (request.struct_size == sizeof request) [[likely]]
    return translate_known(request, to);
  const auto known =
      read_struct<ciranda_request>(&request, request.struct_size, offsetof(ciranda_request, lane), "ciranda_request");
  return known.ok() ? translate_known(known.value(), to) : known.status();
}

}  // namespace ciranda::capi
