#include "capi/translate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

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

Status add_tensor(const ciranda_tensor& tensor, Request& to) {
  const auto dtype = from_abi(tensor.dtype, data_type_from_wire);
  if (!dtype) return out_of_enum("dtype", tensor.dtype);
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > kMaxDimensions) {
    return Status::invalid_argument("ciranda_tensor: ndim is " + std::to_string(tensor.ndim) + ", not 0 to " +
                                    std::to_string(kMaxDimensions));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) return Status::invalid_argument("ciranda_tensor: shape is NULL");
  to.signature.tensors.push_back({*dtype, Shape(tensor.shape, tensor.shape + tensor.ndim)});
  to.memory.push_back({static_cast<const std::byte*>(tensor.input), static_cast<std::byte*>(tensor.output)});
  if (tensor.splits != nullptr) {
    to.splits.resize(to.memory.size());
    to.splits.back().assign(tensor.splits, tensor.splits + tensor.splits_count);
  }
  return Status::ok_status();
}

Status add_tensors(const ciranda_request& request, Request& to) {
  if (request.tensors_count == 0) return Status::ok_status();
  if (request.tensors == nullptr) return Status::invalid_argument("ciranda_request: tensors is NULL");
  if (request.tensors_count > kMaxTensorsPerRequest) {
    return Status::invalid_argument("ciranda_request: " + std::to_string(request.tensors_count) +
                                    " tensors, more than " + std::to_string(kMaxTensorsPerRequest));
  }
  const auto* next = reinterpret_cast<const std::byte*>(request.tensors);
  for (std::size_t i = 0; i < request.tensors_count; ++i, next += request.tensor_struct_size) {
    const auto tensor = read_struct<ciranda_tensor>(next, request.tensor_struct_size, offsetof(ciranda_tensor, splits),
                                                    "ciranda_tensor");
    if (!tensor.ok()) return tensor.status();
    if (Status status = add_tensor(tensor.value(), to); !status.ok()) return status;
  }
  if (!to.splits.empty()) to.splits.resize(to.memory.size());
  return Status::ok_status();
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

bool has_room(const ciranda_request& request, Collective collective) {
  return info(collective).output == Output::kMayHaveRoom && (request.flags & CIRANDA_REQUEST_HAS_ROOM) != 0;
}

// Whether a Call can express the request: it is of this version, has one tensor, and uses no field that a Call lacks.
bool may_be_call(const ciranda_request& request) {
  if (request.struct_size != sizeof request || request.tensor_struct_size != sizeof(ciranda_tensor)) return false;
  constexpr std::uint32_t kFlags = CIRANDA_REQUEST_DEFERRABLE | CIRANDA_REQUEST_AWAITED |
                                   CIRANDA_REQUEST_DIVIDE_BY_ALL | CIRANDA_REQUEST_HAS_ROOM |
                                   CIRANDA_REQUEST_DIRECT_CALLBACK;
  const bool is_plain = (request.flags & ~kFlags) == 0 && request.arguments_count == 0 && request.weight == nullptr;
  const bool is_name_empty = request.name != nullptr && *request.name == '\0';
  if (!is_plain || is_name_empty || request.tensors_count != 1 || request.tensors == nullptr) return false;
  const ciranda_tensor& tensor = *request.tensors;
  const bool may_have_shape = tensor.ndim > 0 && tensor.ndim <= static_cast<std::int32_t>(kMaxDimensions);
  const bool has_shape = tensor.ndim == 0 || (may_have_shape && tensor.shape != nullptr);
  return has_shape && tensor.splits == nullptr;
}

}  // namespace

std::optional<Call> as_call(const ciranda_request& request) {
  // Constructed in the memory of the return value, on the likely path: otherwise gcc clears and copies it by `rep`
  // instructions, which take 20 ns a call.
  std::optional<Call> call;
  if (!may_be_call(request)) [[unlikely]]
    return call;
  const ciranda_tensor& tensor = *request.tensors;
  const auto collective = from_abi(request.collective, collective_from_wire);
  const auto dtype = from_abi(tensor.dtype, data_type_from_wire);
  const auto op = from_abi(request.op, reduce_op_from_wire);
  if (!collective || !dtype || !op) [[unlikely]]
    return call;
  Call& to = call.emplace();
  static_cast<Terms&>(to) = terms_of(request, *collective, *op);
  to.hints = hints_of(request);
  to.name = request.name == nullptr ? std::string_view() : request.name;
  to.dtype = *dtype;
  to.shape = {tensor.shape, static_cast<std::size_t>(tensor.ndim)};
  to.memory.input = static_cast<const std::byte*>(tensor.input);
  to.memory.output = static_cast<std::byte*>(tensor.output);
  to.process_set = request.process_set;
  to.lane = request.lane;
  to.priority = request.priority;
  const CollectiveInfo& facts = info(*collective);
  if (to.memory.input == nullptr && !facts.may_lack_output) to.memory.input = to.memory.output;
  if (facts.output == Output::kMayHaveRoom && !has_room(request, *collective)) to.memory.output = nullptr;
  if (!can_be_repeated(to)) [[unlikely]]
    call.reset();
  return call;
}

Result<Request> translate(const ciranda_request& request) {
  const auto known =
      read_struct<ciranda_request>(&request, request.struct_size, offsetof(ciranda_request, lane), "ciranda_request");
  if (!known.ok()) return known.status();
  const ciranda_request& from = known.value();
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

  Request to;
  to.name = from.name == nullptr ? "" : from.name;
  to.is_cacheable = from.name != nullptr;
  static_cast<Hints&>(to) = hints_of(from);
  static_cast<Terms&>(to.signature) = terms_of(from, *collective, *op);
  to.signature.needs_all = (from.flags & CIRANDA_REQUEST_NEEDS_ALL) != 0;
  to.process_set = from.process_set;
  to.lane = from.lane;
  to.priority = from.priority;
  if (from.arguments_count > kMaxTensorsPerRequest || (from.arguments_count > 0 && from.arguments == nullptr)) {
    return Status::invalid_argument("ciranda_request: arguments is NULL, or there are too many");
  }
  to.signature.arguments.assign(from.arguments, from.arguments + from.arguments_count);
  if (info(*collective).is_reduction && from.weight != nullptr) {
    to.signature.is_weighted = true;
    to.weight = *from.weight;
  }
  to.has_room_for_all = has_room(from, *collective);
  if (Status status = add_tensors(from, to); !status.ok()) return status;
  return to;
}

}  // namespace ciranda::capi
