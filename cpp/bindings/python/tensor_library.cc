#include "bindings/python/tensor_library.hpp"

namespace ciranda::python {

Place TensorLibrary::current_place(std::int32_t gpu) const {
  Place place{DeviceType::kCuda, gpu};
  if (table == nullptr) {
    place.queue = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("current_stream")(gpu)));
  } else if (table->current_stream(dlpack::kCuda, gpu, &place.queue) != 0) {
    throw nb::python_error();
  }
  return place;
}

}  // namespace ciranda::python
