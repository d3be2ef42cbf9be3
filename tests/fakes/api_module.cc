// Modules and kernels. Any code is accepted: kernels are found by name among the twins.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "call.hpp"
#include "exports.hpp"
#include "handles.hpp"
#include "plain_kernels.hpp"
#include "twins.hpp"

namespace ciranda::fakes {
namespace {

struct Module {};

struct Function {
  const Twin* twin;
  std::weak_ptr<Module> module;
};

Handles<CUmodule, Module>& modules() {
  static auto* const kept = new Handles<CUmodule, Module>;
  return *kept;
}

Handles<CUfunction, Function>& functions() {
  static auto* const kept = new Handles<CUfunction, Function>;
  return *kept;
}

// A copy of a kernel's arguments, as a launch makes it.
class Arguments {
 public:
  Arguments(void** arguments, std::span<const std::size_t> n_bytes) {
    for (std::size_t i = 0; i < n_bytes.size(); ++i) {
      const auto* const from = static_cast<const std::byte*>(arguments[i]);
      // What `new` returns is aligned for every type of argument.
      auto& copy = copies_.emplace_back(new std::byte[n_bytes[i]]);
      std::memcpy(copy.get(), from, n_bytes[i]);
      pointers_.push_back(copy.get());
    }
  }

  void** pointers() { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::vector<void*> pointers_;
};

CUresult run(const Twin& twin, void** arguments, unsigned n_blocks, unsigned n_threads) {
  twin.run(arguments, n_blocks, n_threads);
  return CUresult{take_kernel_error()};
}

Launch launch_of(const Twin& twin, void** arguments, unsigned n_blocks, unsigned n_threads) {
  Launch launch{.call = "cuLaunchKernel", .detail = std::string(twin.name)};
  twin.touches(arguments, launch.touches);
  if (twin.n_argument_bytes.empty()) {
    launch.run = [&twin, arguments, n_blocks, n_threads](const VectorClock&) {
      return run(twin, arguments, n_blocks, n_threads);
    };
  } else {
    const auto copies = std::make_shared<Arguments>(arguments, twin.n_argument_bytes);
    launch.run = [&twin, copies, n_blocks, n_threads](const VectorClock&) {
      return run(twin, copies->pointers(), n_blocks, n_threads);
    };
  }
  return launch;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return in_context("cuModuleLoadData", [&](Context&) {
    if (image == nullptr) return CUresult::kInvalidValue;
    *module = modules().add(std::make_shared<Module>());
    return CUresult::kSuccess;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  return in_context("cuModuleGetFunction", [&](Context&) {
    const auto module = modules().find(handle);
    if (module == nullptr) return CUresult::kInvalidHandle;
    const Twin* const plain = find_plain_kernel(name);
    const Twin* const twin = plain == nullptr ? find_twin(name) : plain;
    if (twin == nullptr) return CUresult::kNotFound;
    *function = functions().add(std::make_shared<Function>(Function{twin, module}));
    return CUresult::kSuccess;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return in_context("cuModuleUnload", [&](Context&) {
    return modules().remove(module) == nullptr ? CUresult::kInvalidHandle : CUresult::kSuccess;
  });
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned, CUstream stream_handle, void** parameters,
                        void** extra) {
  constexpr unsigned kMostThreads = 1024;
  Point end;
  bool has_copied = true;
  const CUresult given = on_stream("cuLaunchKernel", stream_handle, [&](Context& context, Stream& stream) {
    const auto function = functions().find(handle);
    if (function == nullptr || function->module.expired()) return CUresult::kInvalidHandle;
    if (stream.device() != context.device) return CUresult::kInvalidHandle;
    const unsigned n_blocks = grid_x * grid_y * grid_z;
    const unsigned n_threads = block_x * block_y * block_z;
    if (n_blocks == 0 || n_threads == 0 || n_threads > kMostThreads || extra != nullptr) return CUresult::kInvalidValue;
    has_copied = !function->twin->n_argument_bytes.empty();
    return stream.enqueue(launch_of(*function->twin, parameters, n_blocks, n_threads), &end);
  });
  if (given == CUresult::kSuccess && !has_copied) end.wait();  // the arguments are the caller's
  return given;
}

}  // namespace ciranda::fakes
