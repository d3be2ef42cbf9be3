// Which kernel computes what, its arguments, and its number of blocks.
//
// The bits of a reduction are those of kernels::reduce (kernels/kernels.hpp). Pure functions; any thread; they cannot
// fail. Addresses are the GPU's.
//
// Called by CopyStream, LoadedKernels, PeerStream, PeerCollective, NcclCollective, through it by what implements that,
// and, for what staging does not use yet, tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cuda/kernels/arguments.hpp"
#include "base/dtype.hpp"
#include "base/reduction.hpp"

namespace ciranda::cuda {

// Every kernel of a module. The values are indices of kKernelNames.
enum class Kernel : std::uint8_t {
#define KERNEL(name, Arguments, ...) name,
#include "backend/cuda/kernels/list.inc"
#undef KERNEL
};

inline constexpr std::string_view kKernelNames[] = {
#define KERNEL(name, Arguments, ...) #name,
#include "backend/cuda/kernels/list.inc"
#undef KERNEL
};
inline constexpr std::size_t kNumKernels = std::size(kKernelNames);

constexpr std::string_view to_string(Kernel kernel) { return kKernelNames[static_cast<std::size_t>(kernel)]; }

struct ReduceLaunch {
  Kernel kernel;
  ReduceArguments arguments;
};

// REQUIRES: accepts(op, dtype), and the op is elementwise; factors are 1 where the op does not accept them, and finite
// for integers; n_average >= 1; 1 to kMostInputs inputs; weights only for sums of floating or complex types, as many as
// inputs. `out` may be one of the inputs, but not merely overlap one.
ReduceLaunch make_reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                         std::size_t count);

struct ScaleLaunch {
  Kernel kernel;
  ScaleArguments arguments;
};

// Scales each element as a reduction of one input does: times prescale, divided by n_average if the op is kAverage,
// times postscale. If all factors are 1, use copy_bytes: this kernel would make NaN canonical. REQUIRES:
// accepts_factors(op, dtype); the op is kSum or kAverage; the pieces are numbered by kChunkBytes, with whole elements
// in each; no weights.
ScaleLaunch make_scale(const Reduction& reduction, const Pieces& pieces);

// The kernel that counts the infinities and NaNs; of complex numbers, each part. REQUIRES: the type is floating or
// complex.
Kernel count_non_finite_kernel(DataType dtype);

// Numbers the chunks of all pieces. Returns how many there are. `pieces` are then copied to where the GPU reads them.
std::uint64_t number_chunks(std::span<Piece> pieces, std::uint64_t chunk_bytes);

// How many blocks, of kMostThreads threads, a launch should have on a GPU with so many multiprocessors: enough to keep
// it busy, and no more than there is work for.
std::uint32_t blocks_for_chunks(std::uint64_t n_chunks, int n_multiprocessors);
std::uint32_t blocks_for_bytes(std::uint64_t n_bytes, int n_multiprocessors);

}  // namespace ciranda::cuda
