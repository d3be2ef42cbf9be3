#include "bindings/tensorflow/attributes.hpp"

#include <algorithm>
#include <charconv>
#include <ciranda/native/context.hpp>
#include <string_view>
#include <system_error>

namespace ciranda::tensorflow {
namespace {

constexpr const char* kBinding = "ciranda.tensorflow";

std::int64_t read_number(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  std::int64_t value = 0;
  if (status.ok()) tf().OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
  return value;
}

double read_factor(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  if (!status.ok()) return 1.0;
  const std::string text = read_string(construction, name, status);
  double value = 1.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status.ok() && (error != std::errc() || end != text.data() + text.size())) {
    tf().SetStatus(status.get(), kInvalidArgument,
                   ("attribute " + std::string(name) + " is no number: " + text).c_str());
  }
  return value;
}

}  // namespace

std::string read_string(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  std::int32_t list_size = 0;
  std::int32_t total_size = 0;
  tf().OpKernelConstruction_GetAttrSize(construction, name, &list_size, &total_size, status.get());
  if (!status.ok()) return "";
  std::string value(static_cast<std::size_t>(total_size), '\0');
  tf().OpKernelConstruction_GetAttrString(construction, name, value.data(), value.size(), status.get());
  return value;
}

std::string name_of_call(const std::string& tensor_name, const std::string& traced, const std::string& node) {
  if (traced.empty() || !std::string_view(node).ends_with(traced)) return tensor_name;
  std::string name;
  std::string_view prefix(node.data(), node.size() - traced.size());
  while (!prefix.empty()) {
    const std::size_t length = prefix.find('/') == std::string_view::npos ? prefix.size() : prefix.find('/') + 1;
    const std::string_view part = prefix.substr(0, length);
    const bool is_number = part.size() > 2 && part[0] == '_' &&
                           part.substr(1, part.size() - 2).find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) name += part;
    prefix.remove_prefix(length);
  }
  return name + tensor_name;
}

Attributes Attributes::read(TF_OpKernelConstruction* construction, const Status& status) {
  Attributes read;
  const std::string tensor_name = read_string(construction, "tensor_name", status);
  const std::string traced = status.ok() ? read_string(construction, "node_name", status) : "";
  const TF_StringView node = tf().OpKernelConstruction_GetName(construction);
  read.name = name_of_call(tensor_name, traced, std::string(node.data, node.len));
  read.reduce_op = static_cast<ciranda_reduce_op>(read_number(construction, "reduce_op", status));
  read.root_rank = static_cast<std::int32_t>(read_number(construction, "root_rank", status));
  read.prescale = read_factor(construction, "prescale_factor", status);
  read.postscale = read_factor(construction, "postscale_factor", status);
  read.flags = static_cast<std::uint32_t>(read_number(construction, "flags", status));
  read.iterations = std::max<std::int64_t>(1, read_number(construction, "iterations", status));
  read.process_set = static_cast<std::uint64_t>(read_number(construction, "process_set", status));
  return read;
}

ciranda_request Attributes::request(ciranda_collective collective) const {
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = collective;
  request.op = reduce_op;
  request.root = root_rank;
  request.prescale = prescale;
  request.postscale = postscale;
  request.flags = flags | CIRANDA_REQUEST_DIRECT_CALLBACK;
  request.name = name.empty() ? nullptr : name.c_str();
  request.binding = kBinding;
  native::take_process_set(process_set, request);
  return request;
}

}  // namespace ciranda::tensorflow
