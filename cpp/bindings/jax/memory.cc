#include "bindings/jax/memory.hpp"

#include <dlfcn.h>

#include <cstring>

namespace ciranda::jax {

namespace {

// The functions of the driver, which XLA has loaded. Its numbers of errors; an address on a GPU is a number.
struct Driver {
  int (*copy)(std::uint64_t to, std::uint64_t from, std::size_t n_bytes, void* stream) = nullptr;
  int (*fill)(std::uint64_t to, unsigned char value, std::size_t n_bytes, void* stream) = nullptr;
  int (*synchronize)(void* stream) = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return;
    copy = reinterpret_cast<decltype(copy)>(dlsym(library, "cuMemcpyAsync"));
    fill = reinterpret_cast<decltype(fill)>(dlsym(library, "cuMemsetD8Async"));
    synchronize = reinterpret_cast<decltype(synchronize)>(dlsym(library, "cuStreamSynchronize"));
  }
  bool is_whole() const { return copy != nullptr && fill != nullptr && synchronize != nullptr; }
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

std::uint64_t number_of(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

std::string problem_of(const char* call, int error) {
  return error == 0 ? "" : std::string(call) + " failed: error " + std::to_string(error) + " of CUDA";
}

}  // namespace

std::string Memory::of_gpu(const ffi::Frame& frame, Memory* memory) {
  const ffi::Api& api = *frame.api;
  if (api.struct_size < sizeof(ffi::Api) || api.get_device == nullptr) {
    return "this jaxlib does not tell a call the number of its GPU: install a newer one";
  }
  if (!driver().is_whole()) return "libcuda.so.1 could not be loaded";
  ffi::GetStream stream{sizeof(ffi::GetStream), nullptr, frame.context, nullptr};
  ffi::GetDevice device{sizeof(ffi::GetDevice), nullptr, frame.context, 0};
  if (api.get_stream(&stream) != nullptr || api.get_device(&device) != nullptr) return "XLA told no stream, or no GPU";
  memory->device_type_ = CIRANDA_CUDA;
  memory->device_ = device.number;
  memory->stream_ = stream.stream;
  return "";
}

void Memory::describe(ciranda_tensor& tensor) const {
  tensor.device_type = device_type_;
  tensor.device = device_;
  tensor.stream = stream_;
}

std::string Memory::order(const ciranda_operation* operation) const {
  if (is_on_host()) return "";
  const ciranda_status status = ciranda_operation_order(operation, device_type_, device_, stream_);
  if (status == CIRANDA_OK) return "";
  return "the result on the GPU is void: a rank was lost, or the GPU has failed. The next call says more";
}

std::string Memory::copy(void* to, const void* from, std::size_t n_bytes) const {
  if (n_bytes == 0) return "";
  if (!is_on_host())
    return problem_of("cuMemcpyAsync", driver().copy(number_of(to), number_of(from), n_bytes, stream_));
  std::memcpy(to, from, n_bytes);
  return "";
}

std::string Memory::fetch(void* to, const void* from, std::size_t n_bytes) const {
  const std::string problem = copy(to, from, n_bytes);
  return is_on_host() || !problem.empty() ? problem : problem_of("cuStreamSynchronize", driver().synchronize(stream_));
}

std::string Memory::fill(void* to, std::uint8_t value, std::size_t n_bytes) const {
  if (n_bytes == 0) return "";
  if (!is_on_host()) return problem_of("cuMemsetD8Async", driver().fill(number_of(to), value, n_bytes, stream_));
  std::memset(to, value, n_bytes);
  return "";
}

}  // namespace ciranda::jax
