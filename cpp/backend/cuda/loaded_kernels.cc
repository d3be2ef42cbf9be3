#include "backend/cuda/loaded_kernels.hpp"

#include <cstdint>
#include <string>

#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

Result<int> attribute_of(const GpuContext& gpu, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  const CUresult outcome = gpu.driver.cuDeviceGetAttribute(&value, attribute, device);
  if (Status status = gpu.check(outcome, "cuDeviceGetAttribute"); !status.ok()) return status;
  return value;
}

}  // namespace

Result<LoadedKernels> LoadedKernels::load(const GpuContext& gpu, CUdevice device, Images images) {
  const Result<int> major = attribute_of(gpu, device, CUdevice_attribute::kComputeCapabilityMajor);
  if (!major.ok()) return major.status();
  const Result<int> minor = attribute_of(gpu, device, CUdevice_attribute::kComputeCapabilityMinor);
  if (!minor.ok()) return minor.status();
  const Result<int> n_multiprocessors = attribute_of(gpu, device, CUdevice_attribute::kMultiprocessorCount);
  if (!n_multiprocessors.ok()) return n_multiprocessors.status();
  const std::span<const std::byte> image = images(10 * major.value() + minor.value());
  if (image.empty()) {
    return Status::invalid_argument("this build has no kernels for compute capability " +
                                    std::to_string(major.value()) + "." + std::to_string(minor.value()) + ", of " +
                                    gpu.name);
  }
  CUmodule module = nullptr;
  const CUresult loaded = gpu.driver.cuModuleLoadData(&module, image.data());
  if (Status status = gpu.check(loaded, "cuModuleLoadData"); !status.ok()) return status;
  LoadedKernels kernels(gpu, n_multiprocessors.value(), module);
  const Result<CUfunction> copy_bytes = kernels.find(Kernel::copy_bytes);
  if (!copy_bytes.ok()) return copy_bytes.status();
  kernels.copy_bytes_ = copy_bytes.value();
  return kernels;
}

Result<CUfunction> LoadedKernels::find(Kernel kernel) const {
  CUfunction function = nullptr;
  const char* const name = to_string(kernel).data();  // of a literal, which ends with a zero byte
  const CUresult found = gpu_.driver.cuModuleGetFunction(&function, module_, name);
  if (Status status = gpu_.check(found, "cuModuleGetFunction"); !status.ok()) return status;
  return function;
}

Status LoadedKernels::launch(CUfunction function, void* arguments, std::uint32_t n_blocks, CUstream stream) const {
  void* parameters[] = {arguments};
  const CUresult launched =
      gpu_.driver.cuLaunchKernel(function, n_blocks, 1, 1, kMostThreads, 1, 1, 0, stream, parameters, nullptr);
  return gpu_.check(launched, "cuLaunchKernel");
}

Status LoadedKernels::launch(Kernel kernel, void* arguments, std::uint32_t n_blocks, CUstream stream) const {
  CUfunction& function = found_[static_cast<std::size_t>(kernel)];
  if (function == nullptr) {
    const Result<CUfunction> found = find(kernel);
    if (!found.ok()) return found.status();
    function = found.value();
  }
  return launch(function, arguments, n_blocks, stream);
}

Status LoadedKernels::copy(const Pieces& pieces, CUstream stream) const {
  CopyArguments arguments{pieces};
  return launch(copy_bytes_, &arguments, blocks_for_chunks(pieces.n_chunks, n_multiprocessors_), stream);
}

Status LoadedKernels::reduce(const ReduceLaunch& reduction, CUstream stream) const {
  ReduceArguments arguments = reduction.arguments;
  return launch(reduction.kernel, &arguments, blocks_for_bytes(arguments.n_bytes, n_multiprocessors_), stream);
}

Status LoadedKernels::checksum(const Pieces& pieces, CUstream stream) const {
  ChecksumArguments arguments{pieces};
  const std::uint32_t n_blocks = blocks_for_chunks(pieces.n_chunks, n_multiprocessors_);
  return launch(Kernel::add_checksums, &arguments, n_blocks, stream);
}

}  // namespace ciranda::cuda
