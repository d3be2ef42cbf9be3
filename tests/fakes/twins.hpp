// Twins: the kernels of the GPU, compiled for the host from the same source. A fake driver runs them.
//
// Pure but for the translation, which is set before the first run; then any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ciranda::fakes {

// A range of memory, in addresses of the GPU, that a launch reads or writes.
struct Touch {
  const std::byte* begin;
  std::size_t n_bytes;
  bool writes;
};

struct Twin {
  std::string_view name;  // of the kernel, as cuModuleGetFunction asks for it
  // `arguments` as kernelParams of cuLaunchKernel: one address, of the kernel's struct of arguments.
  void (*run)(void** arguments, unsigned n_blocks, unsigned n_threads);
  // Appends every range that the launch reads or writes. Memory that it reads and writes is named twice.
  void (*touches)(void** arguments, std::vector<Touch>& touched);
};

// Null: no such kernel. The result lives as long as the process.
const Twin* find_twin(std::string_view name);

// Translates an address of the GPU to one at which the host can access the same memory. By default they are the same.
void set_translation(std::byte* (*in_kernel)(const void* address));

}  // namespace ciranda::fakes
