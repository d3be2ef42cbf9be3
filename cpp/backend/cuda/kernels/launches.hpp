// Which kernel computes what, its arguments, and its number of blocks.
//
// The bits of a reduction are those of kernels::reduce (kernels/kernels.hpp). Pure functions; any thread; they cannot
// fail. Addresses are the GPU's.
//
// Called by CopyStream, checksums.hpp, LoadedKernels, PeerStream, PeerAlone, PeerCollective and NcclCollective, and
// through these by what implements them.
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

// Whether no factor, weight or divisor applies, so that one input is the result.
bool is_unscaled(const Reduction& reduction);

// REQUIRES: accepts(op, dtype), and the op is elementwise; factors are 1 where the op does not accept them, and finite
// for integers; n_average >= 1; 1 to kMostInputs inputs; weights only for sums of floating or complex types, as many as
// inputs. `out` may be one of the inputs, but not merely overlap one.
ReduceLaunch make_reduce(const Reduction& reduction, std::span<const std::byte* const> inputs, std::byte* out,
                         std::size_t count);

// Numbers the chunks of all pieces. Returns how many there are. `pieces` are then copied to where the GPU reads them.
std::uint64_t number_chunks(std::span<Piece> pieces, std::uint64_t chunk_bytes);

// How many blocks, of kMostThreads threads, a launch should have on a GPU with so many multiprocessors: enough to keep
// it busy, and no more than there is work for.
std::uint32_t blocks_for_chunks(std::uint64_t n_chunks, int n_multiprocessors);
std::uint32_t blocks_for_bytes(std::uint64_t n_bytes, int n_multiprocessors);

}  // namespace ciranda::cuda
