#include "bindings/python/outputs.hpp"

#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

namespace ciranda::python {

namespace nb = nanobind;

namespace {

dlpack::ElementType element_type(DataType dtype) {
  const DataTypeInfo& row = info(dtype);
  return {row.dlpack_code, static_cast<std::uint8_t>(row.n_bytes * 8), 1};
}

dlpack::Device device_of(const Place& place) {
  return place.is_host() ? dlpack::Device{dlpack::kCpu, 0} : dlpack::Device{dlpack::kCuda, place.index};
}

// A DLPack tensor that owns a share of an output buffer.
struct SharedTensor {
  dlpack::ManagedTensor managed{};
  std::shared_ptr<std::byte> data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

std::unique_ptr<SharedTensor> share(const OutputBuffer& buffer, DataType dtype) {
  auto shared = std::make_unique<SharedTensor>();
  shared->data = buffer.data;
  shared->shape = buffer.shape;
  shared->strides.resize(buffer.shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = buffer.shape.size(); i-- > 0;) {
    shared->strides[i] = stride;
    stride *= buffer.shape[i];
  }
  shared->managed.version = {dlpack::kMajorVersion, 0};
  shared->managed.manager = shared.get();
  shared->managed.deleter = [](dlpack::ManagedTensor* self) {
    const std::unique_ptr<SharedTensor> owner(static_cast<SharedTensor*>(self->manager));
  };
  dlpack::Tensor& tensor = shared->managed.tensor;
  tensor.data = shared->data.get();
  tensor.device = device_of(buffer.place);
  tensor.ndim = static_cast<std::int32_t>(shared->shape.size());
  tensor.dtype = element_type(dtype);
  tensor.shape = shared->shape.data();
  tensor.strides = shared->strides.data();
  return shared;
}

nb::object wrap_by_table(const OutputBuffer& buffer, DataType dtype, const dlpack::ExchangeTable& table) {
  std::unique_ptr<SharedTensor> shared = share(buffer, dtype);
  void* object = nullptr;
  if (table.from_managed(&shared.release()->managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

// `Kind`: nb::numpy, or nb::array_api, an object that has nothing but the methods of DLPack.
template <typename Kind>
nb::object wrap_as_array(const OutputBuffer& buffer, dlpack::ElementType type) {
  auto keeper = std::make_unique<std::shared_ptr<std::byte>>(buffer.data);
  const nb::capsule owner(keeper.get(), [](void* pointer) noexcept {
    const std::unique_ptr<std::shared_ptr<std::byte>> last(static_cast<std::shared_ptr<std::byte>*>(pointer));
  });
  static_cast<void>(keeper.release());
  const std::vector<std::size_t> shape(buffer.shape.begin(), buffer.shape.end());
  const dlpack::Device device = device_of(buffer.place);
  nb::ndarray<Kind> array(buffer.data.get(), shape.size(), shape.data(), owner, nullptr,
                          nb::dlpack::dtype{type.code, type.bits, type.lanes}, device.type, device.id);
  return array.cast();
}

}  // namespace

nb::object wrap_output(const OutputBuffer& buffer, DataType dtype, const TensorLibrary& library) {
  if (library.table != nullptr) return wrap_by_table(buffer, dtype, *library.table);
  if (!buffer.place.is_host())
    return library.object.attr("from_dlpack")(wrap_as_array<nb::array_api>(buffer, element_type(dtype)));
  return wrap_as_array<nb::numpy>(buffer, element_type(dtype == DataType::kBFloat16 ? DataType::kUInt16 : dtype));
}

}  // namespace ciranda::python
