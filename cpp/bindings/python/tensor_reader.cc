#include "bindings/python/tensor_reader.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings/python/errors.hpp"

namespace ciranda::python {

namespace {

// Programs use few tensor types; beyond this many the oldest is looked up again.
constexpr std::size_t kMaxKnownTypes = 16;

std::optional<DataType> data_type_from_dlpack(std::uint8_t code, std::uint8_t bits, std::uint16_t lanes) {
  for (const DataTypeInfo& row : kDataTypes) {
    if (row.dlpack_code == code && row.n_bytes * 8 == bits && lanes == 1) return row.dtype;
  }
  return std::nullopt;
}

bool is_contiguous(const std::int64_t* shape, const std::int64_t* strides, std::size_t ndim) {
  if (strides == nullptr) return true;
  bool dense = true;
  std::int64_t expected = 1;
  for (std::size_t i = ndim; i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) dense = false;
    expected *= shape[i];
  }
  return dense;
}

std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

std::string class_of(nb::handle tensor) { return nb::inst_name(tensor).c_str(); }

[[noreturn]] void raise_unsupported_dtype(nb::handle tensor) {
  const std::string dtype = nb::hasattr(tensor, "dtype") ? text_of(nb::object(tensor.attr("dtype"))) : "unknown";
  std::string known;
  for (const DataTypeInfo& row : kDataTypes) known += (known.empty() ? "" : ", ") + std::string(row.name);
  raise_invalid_argument(class_of(tensor) + " of dtype " + dtype + " cannot be combined; supported: " + known +
                         "; cast it, or view it as bytes to move it");
}

// The library refused to lend the tensor, and has set a Python error with the reason on its first line.
[[noreturn]] void raise_refused(nb::handle tensor) {
  const nb::python_error error;
  const std::string reason = text_of(error.value());
  raise_invalid_argument(class_of(tensor) + " cannot be communicated: " + reason.substr(0, reason.find('\n')));
}

bool is_host(const dlpack::Tensor& view) {
  return view.device.type == dlpack::kCpu || view.device.type == dlpack::kCudaHost;
}

[[noreturn]] void raise_unsupported_device(nb::handle tensor) {
  const std::string device = nb::hasattr(tensor, "device") ? text_of(nb::object(tensor.attr("device"))) : "unknown";
  raise_invalid_argument("the " + class_of(tensor) + " is on device " + device +
                         ", which Ciranda has no access to; copy it to CPU memory first");
}

// Checks a tensor of any source, and fills in its dtype and shape.
void fill(nb::handle tensor, const dlpack::Tensor& view, TensorSignature& signature) {
  const auto dtype = data_type_from_dlpack(view.dtype.code, view.dtype.bits, view.dtype.lanes);
  if (!dtype) raise_unsupported_dtype(tensor);
  const auto ndim = static_cast<std::size_t>(view.ndim);
  if (!is_contiguous(view.shape, view.strides, ndim)) raise_invalid_argument("the tensor is not contiguous in C order");
  signature.dtype = *dtype;
  signature.shape.assign(view.shape, view.shape + ndim);
}

std::byte* address(const dlpack::Tensor& view) {
  return view.data == nullptr ? nullptr : static_cast<std::byte*>(view.data) + view.byte_offset;
}

template <typename Array>
std::byte* read_imported(nb::handle tensor, const Array& array, TensorSignature& signature) {
  dlpack::Tensor view{};
  view.data = const_cast<void*>(static_cast<const void*>(array.data()));
  view.device = {array.device_type(), array.device_id()};
  view.ndim = static_cast<std::int32_t>(array.ndim());
  view.dtype = {array.dtype().code, array.dtype().bits, array.dtype().lanes};
  view.shape = const_cast<std::int64_t*>(array.shape_ptr());
  view.strides = const_cast<std::int64_t*>(array.stride_ptr());
  if (!is_host(view)) raise_unsupported_device(tensor);
  fill(tensor, view, signature);
  return address(view);
}

std::byte* import_and_read(nb::handle tensor, Access access, TensorSignature& signature) {
  if (access == Access::kWrite) {
    nb::ndarray<> array;
    if (nb::try_cast(tensor, array)) return read_imported(tensor, array, signature);
    nb::ndarray<nb::ro> readable;
    if (nb::try_cast(tensor, readable)) raise_invalid_argument("the output " + class_of(tensor) + " is read-only");
  } else {
    nb::ndarray<nb::ro> array;
    if (nb::try_cast(tensor, array)) return read_imported(tensor, array, signature);
  }
  if (nb::hasattr(tensor, "dtype")) raise_unsupported_dtype(tensor);
  raise_invalid_argument("expected a tensor, got " + class_of(tensor));
}

TensorView read_by_table(nb::handle tensor, const dlpack::ExchangeTable& table, TensorSignature& signature) {
  dlpack::Tensor view{};
  if (table.view(tensor.ptr(), &view) != 0) raise_refused(tensor);
  const bool is_on_cuda = view.device.type == dlpack::kCuda;
  if (!is_on_cuda && !is_host(view)) raise_unsupported_device(tensor);
  fill(tensor, view, signature);
  const TensorLibrary library{&table};
  return {address(view), is_on_cuda ? library.current_place(view.device.id) : Place{}, library};
}

TensorView read_description(const TensorDescription& description, TensorSignature& signature) {
  signature.dtype = description.dtype;
  signature.shape = description.shape;
  auto* const address = reinterpret_cast<std::byte*>(description.address);
  if (!description.library.is_valid()) return {address};
  const TensorLibrary library{nullptr, description.library};
  return {address, library.current_place(description.gpu), library};
}

// Asks Python, which knows the libraries whose arrays have the interface.
TensorView read_cuda_array(nb::handle tensor, TensorSignature& signature) {
  const nb::object description = nb::module_::import_("ciranda._cuda_arrays").attr("describe")(tensor);
  return read_description(nb::cast<const TensorDescription&>(description), signature);
}

}  // namespace

TensorReader::Interfaces TensorReader::interfaces_of(nb::handle tensor) {
  const nb::handle type = tensor.type();
  for (const KnownType& known : known_types_) {
    if (known.type.ptr() == type.ptr()) return known.interfaces;
  }
  Interfaces interfaces;
  const nb::object capsule = nb::getattr(type, dlpack::kExchangeAttribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::kExchangeCapsule) != 0) {
    void* pointer = PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchangeCapsule);
    interfaces.table = dlpack::find_supported(static_cast<const dlpack::ExchangeHeader*>(pointer));
  }
  KnownType oldest;  // released at the end: that may run Python code
  if (known_types_.size() >= kMaxKnownTypes) {
    oldest = std::move(known_types_.front());
    known_types_.erase(known_types_.begin());
  }
  interfaces.is_cuda_array = interfaces.table == nullptr && nb::hasattr(type, "__cuda_array_interface__");
  known_types_.push_back({nb::borrow(type), interfaces});
  return interfaces;
}

TensorView TensorReader::read(nb::handle tensor, Access access, TensorSignature& signature) {
  const Interfaces interfaces = interfaces_of(tensor);
  if (interfaces.table != nullptr) return read_by_table(tensor, *interfaces.table, signature);
  if (interfaces.is_cuda_array) return read_cuda_array(tensor, signature);
  if (nb::isinstance<TensorDescription>(tensor)) {
    return read_description(nb::cast<const TensorDescription&>(tensor), signature);
  }
  return {import_and_read(tensor, access, signature)};
}

void bind_tensor_description(nb::module_& m) {
  nb::class_<TensorDescription>(
      m, "TensorDescription",
      "A contiguous tensor by address, shape and dtype number, kept alive by `owner`. On a GPU: its number, and "
      "the library (ciranda._cuda_arrays.Library).")
      .def(
          "__init__",
          [](TensorDescription* self, std::uintptr_t address, std::vector<std::int64_t> shape, std::uint8_t dtype,
             nb::object owner, nb::handle library, std::int32_t gpu) {
            const auto known = data_type_from_wire(dtype);
            if (!known) raise_invalid_argument("there is no dtype number " + std::to_string(dtype));
            new (self) TensorDescription{address,
                                         std::move(shape),
                                         *known,
                                         std::move(owner),
                                         library.is_none() ? nb::object() : nb::borrow(library),
                                         gpu};
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("dtype"), nb::arg("owner"), nb::arg("library") = nb::none(),
          nb::arg("gpu") = 0);
}

}  // namespace ciranda::python
