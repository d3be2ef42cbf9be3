// The reduction of n inputs by the kernels of one level: selects a kernel, and passes the inputs to it in groups.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold.
//
// A group has up to eight inputs, which are combined in registers; so up to eight inputs need one pass over memory.
// More inputs are reduced block by block. Each full group writes a partial result into a block that stays in the cache.
// Partial results are merged like the carries of a binary counter, in the same pass as the group that completes them.
// The last group (one to eight inputs) merges all partial results and writes the result.
//
// Called by level_avx2.cc, level_avx512.cc and level_baseline.cc; pure.
#pragma once

#include <type_traits>

#include "kernels/integer_types.hpp"
#include "kernels/level.hpp"
#include "kernels/level_convert.hpp"
#include "kernels/level_kernel.hpp"
#include "kernels/level_word.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

inline constexpr std::size_t kMaxPartials = 20;  // enough for 8 * 2^20 inputs
inline constexpr std::size_t kMaxChunkBytes = 128;

// Copies of the bytes [from_bytes, to_bytes) of each input of a group, each padded with zeros to a chunk.
class PaddedTail {
 public:
  PaddedTail(const Group& group, std::size_t n_inputs, std::size_t from_bytes, std::size_t to_bytes)
      : weights_(group.weights) {
    for (std::size_t i = 0; i < n_inputs; ++i) {
      __builtin_memset(bytes_[i], 0, kMaxChunkBytes);
      __builtin_memcpy(bytes_[i], group.inputs[i] + group.offset_bytes + from_bytes, to_bytes - from_bytes);
      inputs_[i] = bytes_[i];
    }
  }
  Group group() const { return {inputs_, 0, weights_}; }

 private:
  std::byte bytes_[kGroup][kMaxChunkBytes];  // the first n_inputs are used
  const std::byte* inputs_[kGroup];
  const double* weights_;
};

class Driver {
 public:
  Driver(const KernelTable& kernel, const VectorJob& job)
      : kernel_(kernel), job_(job), factors_{job.prescale, job.divisor, job.postscale} {}

  void run() const {
    if (job_.n_inputs <= kGroup) return run_last(group_at(0, 0), job_.n_inputs, {}, job_.n_bytes);
    Block partials[kMaxPartials];
    const std::size_t n_block_bytes = kBlockBytes / kernel_.partial_chunk_bytes * kernel_.chunk_bytes;
    for (std::size_t at = 0; at < job_.n_bytes; at += n_block_bytes) {
      const std::size_t n_rest = job_.n_bytes - at;
      run_block(partials, at, n_rest < n_block_bytes ? n_rest : n_block_bytes);
    }
  }

 private:
  // The group that begins with input first_input.
  Group group_at(std::size_t first_input, std::size_t offset_bytes) const {
    const double* weights = job_.weights == nullptr ? nullptr : job_.weights + first_input;
    return {job_.inputs + first_input, offset_bytes, weights};
  }

  void run_block(Block* partials, std::size_t at, std::size_t n_bytes) const {
    const std::size_t n_full_groups = (job_.n_inputs - 1) / kGroup;
    std::size_t n_partials = 0;
    for (std::size_t group = 0; group < n_full_groups; ++group) {
      const auto n_carries = static_cast<std::size_t>(__builtin_ctzll(group + 1));
      n_partials -= n_carries;
      run_group(group_at(group * kGroup, at), partials + n_partials, n_carries, n_bytes);
      ++n_partials;
    }
    const std::size_t n_done = n_full_groups * kGroup;
    run_last(group_at(n_done, at), job_.n_inputs - n_done, {partials, n_partials, 0}, n_bytes);
  }

  // Combines a full group with the n_carries blocks that begin at `first`, and writes the result to *first.
  void run_group(const Group& group, Block* first, std::size_t n_carries, std::size_t n_bytes) const {
    const std::size_t n_chunks = n_bytes / kernel_.chunk_bytes;
    kernel_.group(group, {first, n_carries, 0}, factors_, first->bytes, n_chunks);
    const std::size_t n_whole_bytes = n_chunks * kernel_.chunk_bytes;
    if (n_whole_bytes == n_bytes) return;
    const PaddedTail tail(group, kGroup, n_whole_bytes, n_bytes);
    kernel_.group(tail.group(), {first, n_carries, n_chunks}, factors_,
                  first->bytes + n_chunks * kernel_.partial_chunk_bytes, 1);
  }

  // Combines the last group with all partials and writes the result. An incomplete last chunk is computed in padded
  // copies, by the same instructions as all others.
  void run_last(const Group& group, std::size_t n_inputs, Partials partials, std::size_t n_bytes) const {
    const ChunksFunction function = kernel_.last[n_inputs - 1];
    const std::size_t n_chunks = n_bytes / kernel_.chunk_bytes;
    std::byte* out = job_.out + group.offset_bytes;
    if (n_chunks > 0) function(group, partials, factors_, out, n_chunks);
    const std::size_t n_whole_bytes = n_chunks * kernel_.chunk_bytes;
    if (n_whole_bytes == n_bytes) return;
    const PaddedTail tail(group, n_inputs, n_whole_bytes, n_bytes);
    std::byte padded[kMaxChunkBytes];
    partials.first_chunk = n_chunks;
    function(tail.group(), partials, factors_, padded, 1);
    __builtin_memcpy(out + n_whole_bytes, padded, n_bytes - n_whole_bytes);
  }

  const KernelTable& kernel_;
  const VectorJob& job_;
  Factors factors_;
};

// For at most kGroup inputs of at most a word each, such as a loss, which programs reduce often. The first lanes of a
// chunk are assembled in a register: if smaller stores assembled them in memory, the load of the whole vector would
// wait until all these stores have reached the cache.
template <std::size_t kVectorBytes>
void run_words(const KernelTable& kernel, const VectorJob& job) {
  using Words = typename VectorOf<kVectorBytes, std::uint64_t>::Type;
  alignas(kVectorBytes) std::byte chunks[kGroup][2 * kVectorBytes];
  const std::byte* inputs[kGroup];
  for (std::size_t i = 0; i < job.n_inputs; ++i) {
    store_vector(chunks[i], Words{load_word(job.inputs[i], job.n_bytes)});
    store_vector(chunks[i] + kVectorBytes, Words{});
    inputs[i] = chunks[i];
  }
  Words result[2];
  kernel.last[job.n_inputs - 1]({inputs, 0, job.weights}, {}, {job.prescale, job.divisor, job.postscale},
                                reinterpret_cast<std::byte*>(result), 1);
  store_word(job.out, result[0][0], job.n_bytes);
}

template <class Codec, ReduceOp kOp, Scaling kScaling = Scaling{}>
void run(const VectorJob& job) {
  static_assert(Codec::kChunkBytes <= kMaxChunkBytes);
  static constexpr KernelTable kTable = Kernel<Codec, kOp, kScaling>::table();
  if (job.n_bytes <= kWordBytes && job.n_inputs <= kGroup) {
    return run_words<sizeof(typename Codec::Lanes::Vector)>(kTable, job);
  }
  Driver(kTable, job).run();
}

// A multiplication by exactly 1 changes no value, so kScaled is also used if there is no factor. A division by 1 would
// be exact as well, but slower.
template <class Codec, ReduceOp kOp>
void run_floating(const VectorJob& job) {
  if constexpr (kOp == ReduceOp::kSum) {
    if (job.weights != nullptr) return run<Codec, kOp, Scaling{OfInputs::kWeighted, OfResult::kScaled}>(job);
    if (job.divisor != 1.0) {
      if (job.prescale == 1.0) return run<Codec, kOp, Scaling{OfInputs::kAsIs, OfResult::kDivided}>(job);
      return run<Codec, kOp, Scaling{OfInputs::kScaled, OfResult::kDivided}>(job);
    }
    if (job.prescale == 1.0 && job.postscale != 1.0) {
      return run<Codec, kOp, Scaling{OfInputs::kAsIs, OfResult::kScaled}>(job);
    }
  }
  if (job.prescale == 1.0 && job.postscale == 1.0) return run<Codec, kOp>(job);
  run<Codec, kOp, Scaling{OfInputs::kScaled, OfResult::kScaled}>(job);
}

template <class Codec>
void reduce_floating(const VectorJob& job) {
  switch (job.op) {
    case ReduceOp::kMin: return run_floating<Codec, ReduceOp::kMin>(job);
    case ReduceOp::kMax: return run_floating<Codec, ReduceOp::kMax>(job);
    case ReduceOp::kProduct: return run_floating<Codec, ReduceOp::kProduct>(job);
    default: return run_floating<Codec, ReduceOp::kSum>(job);
  }
}

// Bitwise operators do not depend on the element type, so unsigned words serve all.
template <class Codec>
void reduce_bitwise(const VectorJob& job) {
  switch (job.op) {
    case ReduceOp::kBitwiseAnd: return run<Codec, ReduceOp::kBitwiseAnd>(job);
    case ReduceOp::kBitwiseOr: return run<Codec, ReduceOp::kBitwiseOr>(job);
    default: return run<Codec, ReduceOp::kBitwiseXor>(job);
  }
}

// Sums and products wrap, so the kernel of the unsigned type also serves the signed type.
template <class L, class T>
void reduce_integer(const VectorJob& job) {
  using Unsigned = std::make_unsigned_t<T>;
  using Codec = PlainCodec<L, IntegerLanes<L, T>, false>;
  using UnsignedCodec = PlainCodec<L, IntegerLanes<L, Unsigned>, false>;
  switch (job.op) {
    case ReduceOp::kMin: return run<Codec, ReduceOp::kMin>(job);
    case ReduceOp::kMax: return run<Codec, ReduceOp::kMax>(job);
    case ReduceOp::kProduct: return run<UnsignedCodec, ReduceOp::kProduct>(job);
    case ReduceOp::kSum: return run<UnsignedCodec, ReduceOp::kSum>(job);
    default: return reduce_bitwise<PlainCodec<L, IntegerLanes<L, std::uint8_t>, false>>(job);
  }
}

template <class L>
void reduce_bool(const VectorJob& job) {
  switch (job.op) {
    case ReduceOp::kMin: return run<BoolCodec<L>, ReduceOp::kMin>(job);
    case ReduceOp::kMax: return run<BoolCodec<L>, ReduceOp::kMax>(job);
    default: return run<BoolCodec<L>, ReduceOp::kBitwiseXor>(job);
  }
}

template <class L, class PartLanes>
void reduce_complex(const VectorJob& job) {
  run_floating<PlainCodec<L, ComplexLanes<PartLanes>, true>, ReduceOp::kProduct>(job);
}

template <class L>
void reduce_level(const VectorJob& job) {
  if (job.conversion != Conversion::kNone) return Converter<L>::run(job);
  switch (job.dtype) {
    case DataType::kBool: return reduce_bool<L>(job);
    case DataType::kFloat16: return reduce_floating<Float16Codec<L>>(job);
    case DataType::kBFloat16: return reduce_floating<BFloat16Codec<L>>(job);
    case DataType::kFloat32: return reduce_floating<PlainCodec<L, Float32Lanes<L>, true>>(job);
    case DataType::kFloat64: return reduce_floating<PlainCodec<L, Float64Lanes<L>, true>>(job);
    case DataType::kComplex64: return reduce_complex<L, Float32Lanes<L>>(job);
    case DataType::kComplex128: return reduce_complex<L, Float64Lanes<L>>(job);
    default: return with_integer(job.dtype, [&]<class T>(T) { reduce_integer<L, T>(job); });
  }
}

}  // namespace
}  // namespace ciranda::kernels
