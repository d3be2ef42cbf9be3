// Memory: where the buffers of a program lie: on the host, or on a GPU in the order of one of its streams.
// Called by CollectiveCall, collective.hpp, gpu_collective.hpp, look.hpp and GpuFrame; any thread.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/jax/ffi.hpp"

namespace ciranda::jax {

class Memory {
 public:
  static Memory of_host() { return {}; }
  // That of the frame of a program for a GPU. Returns why there is none; "" on success. REQUIRES: the calling thread is
  // XLA's, and in the GPU's context.
  static std::string of_gpu(const ffi::Frame& frame, Memory* memory);

  // Says where the tensor is.
  void describe(ciranda_tensor& tensor) const;
  // Lets the stream wait for the results of an operation that is done. Returns why it cannot; "" on success.
  std::string order(const ciranda_operation* operation) const;

  // Copies within this memory, or fills it. On a GPU this is given to the stream. Return what has failed; "" if nothing
  // has.
  std::string copy(void* to, const void* from, std::size_t n_bytes) const;
  std::string fill(void* to, std::uint8_t value, std::size_t n_bytes) const;
  // Copies to memory of the host, which waits for the GPU.
  std::string fetch(void* to, const void* from, std::size_t n_bytes) const;

 private:
  bool is_on_host() const { return device_type_ == CIRANDA_HOST; }

  std::int32_t device_type_ = CIRANDA_HOST;
  std::int32_t device_ = 0;
  void* stream_ = nullptr;
};

}  // namespace ciranda::jax
