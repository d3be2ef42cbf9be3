// Twins: the kernels of cpp/backend/cuda/kernels, compiled for the host from the same source. The fake driver runs them
// in place of the GPU's code.
//
// Threads: any, once the translation is set. A twin runs on the thread of a stream.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ciranda::fakes {

// Bytes that an operation of a stream reads or writes, by their address on the device.
struct Touch {
  const std::byte* begin;
  std::size_t n_bytes;
  bool writes;
};

struct Twin {
  std::string_view name;  // of the kernel, as cuModuleGetFunction asks for it
  // One launch: arguments as cuLaunchKernel's kernelParams.
  void (*run)(void** arguments, unsigned n_blocks, unsigned n_threads);
  // Appends every range that the launch reads or writes. Called when the kernel is launched.
  void (*touches)(void** arguments, std::vector<Touch>& touched);
  // The size of each argument, which the launch copies. Empty: the launch returns when the kernel has run.
  std::span<const std::size_t> n_argument_bytes = {};
};

// Returns null if there is no such kernel.
const Twin* find_twin(std::string_view name);

// How a twin gets from an address on the device to one that the host may use: identity unless this sets another.
void set_translation(std::byte* (*in_kernel)(const void*));

}  // namespace ciranda::fakes
