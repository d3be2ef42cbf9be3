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

// Checks a tensor of any source, and fills in its dtype and shape.
void fill(nb::handle tensor, const dlpack::Tensor& view, TensorSignature& signature) {
  if (view.device.type != dlpack::kCpu && view.device.type != dlpack::kCudaHost) {
    raise_invalid_argument("the tensor is on device " + text_of(nb::object(tensor.attr("device"))) +
                           ", but only tensors in CPU memory are supported");
  }
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

}  // namespace

const dlpack::ExchangeTable* TensorReader::table_of(nb::handle tensor) {
  const nb::handle type = tensor.type();
  for (const KnownType& known : known_types_) {
    if (known.type.ptr() == type.ptr()) return known.table;
  }
  const dlpack::ExchangeTable* table = nullptr;
  const nb::object capsule = nb::getattr(type, dlpack::kExchangeAttribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::kExchangeCapsule) != 0) {
    void* pointer = PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchangeCapsule);
    table = dlpack::find_supported(static_cast<const dlpack::ExchangeHeader*>(pointer));
  }
  KnownType oldest;  // released at the end: that may run Python code
  if (known_types_.size() >= kMaxKnownTypes) {
    oldest = std::move(known_types_.front());
    known_types_.erase(known_types_.begin());
  }
  known_types_.push_back({nb::borrow(type), table});
  return table;
}

TensorView TensorReader::read(nb::handle tensor, Access access, TensorSignature& signature) {
  if (const dlpack::ExchangeTable* table = table_of(tensor)) {
    dlpack::Tensor view{};
    if (table->view(tensor.ptr(), &view) != 0) raise_refused(tensor);
    fill(tensor, view, signature);
    return {address(view), table};
  }
  if (nb::isinstance<TensorDescription>(tensor)) {
    const auto& description = nb::cast<const TensorDescription&>(tensor);
    signature.dtype = description.dtype;
    signature.shape = description.shape;
    return {reinterpret_cast<std::byte*>(description.address)};
  }
  return {import_and_read(tensor, access, signature)};
}

void bind_tensor_description(nb::module_& m) {
  nb::class_<TensorDescription>(m, "TensorDescription",
                                "A contiguous tensor by address, shape and dtype number, kept alive by `owner`.")
      .def(
          "__init__",
          [](TensorDescription* self, std::uintptr_t address, std::vector<std::int64_t> shape, std::uint8_t dtype,
             nb::object owner) {
            const auto known = data_type_from_wire(dtype);
            if (!known) raise_invalid_argument("there is no dtype number " + std::to_string(dtype));
            new (self) TensorDescription{address, std::move(shape), *known, std::move(owner)};
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("dtype"), nb::arg("owner"));
}

}  // namespace ciranda::python
