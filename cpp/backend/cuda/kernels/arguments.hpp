// The arguments of the kernels. Each kernel takes one of these structs by value. The host's compiler and the GPU's read
// this header, so it contains nothing but integers of fixed sizes, doubles and addresses in the memory that the GPU
// accesses: its own, or host memory that is registered with it.
// Used by launches.hpp, LoadedKernels and copies.hpp on the host, and by kernels.inc and elements.inc on the GPU; plain
// values.
#pragma once

#include <cstdint>

namespace ciranda::cuda {

inline constexpr std::uint32_t kMostThreads = 256;  // of a block, which has a multiple of 32
inline constexpr std::uint32_t kMostInputs = 64;    // of a reduction

// A range of memory. The GPU accesses an array of any number of them. A launch divides the ranges into chunks, which
// are numbered across all of them, and distributes these over its blocks; launches.hpp numbers them. A block finds its
// first range by a binary search, whose reads wait for each other: a long array should be in the GPU's memory.
struct Piece {
  const void* from;           // any alignment
  void* to;                   // any alignment; may be equal to `from`
  std::uint64_t n_bytes;      // may be 0
  std::uint64_t first_chunk;  // of this range; an empty range has no chunks
};

struct Pieces {
  const Piece* first;
  std::uint64_t count;
  std::uint64_t n_chunks;  // of all ranges
};

inline constexpr std::uint64_t kChunkBytes = 16 * 1024;           // of a copy
inline constexpr std::uint64_t kChecksumChunkBytes = 256 * 1024;  // a block of the checksum for each thread

// The factors, in the order of their application: each input is multiplied, the result divided and then multiplied. A
// factor of 1 changes nothing.
struct Scaling {
  double prescale;
  double divisor;  // a whole number
  double postscale;
};

// copy_bytes: copies each range.
struct CopyArguments {
  Pieces pieces;
};

// Averages and scaling of integers have one kernel for all integer types and operators.
enum class IntegerOp : std::uint32_t { kSum, kAverage, kProduct, kMin, kMax };

struct IntegerTask {
  IntegerOp op;
  std::uint16_t n_bytes;  // of an element
  std::uint16_t is_signed;
};

// reduce_*: reduces the inputs to `out`, which may be equal to one of them.
struct ReduceArguments {
  const void* inputs[kMostInputs];
  double weights[kMostInputs];  // of the inputs, by which prescale is multiplied, if is_weighted
  void* out;
  std::uint64_t n_bytes;  // of each input
  Scaling scaling;
  std::uint32_t n_inputs;
  std::uint32_t is_weighted;
  IntegerTask integers;  // of reduce_scaled_integers only
};

// add_checksums: adds the checksums of a range's blocks (base/checksum.hpp) to the std::uint64_t at `to`. Chunks are of
// kChecksumChunkBytes.
struct ChecksumArguments {
  Pieces pieces;
};

static_assert(sizeof(Piece) == 32 && sizeof(CopyArguments) == 24 && sizeof(ReduceArguments) == 16 * kMostInputs + 56);

}  // namespace ciranda::cuda
