// The reduction of n inputs, for one codec and one operator, and the choice among them.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold.
//
// Inputs are taken in groups of four, each combined in registers ("leaf"). Up to four inputs are therefore one pass
// over memory. More are reduced block by block: each full group leaves a partial result in a cache-resident block, and
// partials are merged like the carries of a binary counter, in the same pass as the leaf that completes them. The
// last group (one to four inputs) merges all partials and writes the result.
#pragma once

#include "kernels/level.hpp"
#include "kernels/level_codecs.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

inline constexpr std::size_t kGroup = 4;          // inputs combined in registers
inline constexpr std::size_t kBlockBytes = 4096;  // of one partial result
inline constexpr std::size_t kMaxPartials = 20;   // more than 4 * 2^19 inputs would be needed to exceed it

template <class Codec, ReduceOp kOp, bool kScaled>
class Kernel {
 public:
  static void run(const VectorJob& job) {
    const Kernel kernel{static_cast<Scalar>(job.prescale), static_cast<Scalar>(job.postscale)};
    if (job.n_inputs <= kGroup) {
      kernel.template last_pass<false>({job.inputs, job.n_inputs, 0}, nullptr, 0, job.out, job.n_bytes);
    } else {
      kernel.run_blocks(job);
    }
  }

 private:
  using Lanes = typename Codec::Lanes;
  using Scalar = typename Codec::Scalar;
  using Values = Pair<Lanes>;
  static constexpr std::size_t kChunk = Codec::kChunkBytes;
  static constexpr std::size_t kChunksPerBlock = kBlockBytes / sizeof(Values);

  struct Block {
    Values values[kChunksPerBlock];
  };
  struct Group {
    const std::byte* const* inputs;
    std::size_t n_inputs;
    std::size_t offset_bytes;
  };

  struct Partials {
    const Block* blocks;
    std::size_t count;
    std::size_t first_chunk;  // of each block
  };

  Kernel(Scalar prescale, Scalar postscale) : prescale_(prescale), postscale_(postscale) {}

  void run_blocks(const VectorJob& job) const {
    Block partials[kMaxPartials];
    const std::size_t n_full_groups = (job.n_inputs - 1) / kGroup;
    for (std::size_t at = 0; at < job.n_bytes; at += kChunksPerBlock * kChunk) {
      const std::size_t rest = job.n_bytes - at;
      const std::size_t n_bytes = rest < kChunksPerBlock * kChunk ? rest : kChunksPerBlock * kChunk;
      std::size_t n_partials = 0;
      for (std::size_t group = 0; group < n_full_groups; ++group) {
        const auto n_carries = static_cast<std::size_t>(__builtin_ctzll(group + 1));
        n_partials -= n_carries;
        group_pass({job.inputs + group * kGroup, kGroup, at}, partials + n_partials, n_carries, n_bytes);
        ++n_partials;
      }
      const std::size_t n_done = n_full_groups * kGroup;
      last_pass<true>({job.inputs + n_done, job.n_inputs - n_done, at}, partials, n_partials, job.out + at, n_bytes);
    }
  }

  // Combines a full group with the n_carries blocks from first on, and leaves the result in *first.
  [[gnu::noinline]] void group_pass(const Group& group, Block* first, std::size_t n_carries,
                                    std::size_t n_bytes) const {
    const std::size_t n_chunks = n_bytes / kChunk;
    auto* to = reinterpret_cast<std::byte*>(first);
    chunks<kGroup, true, false>(group, {first, n_carries, 0}, to, n_chunks);
    if (n_chunks * kChunk == n_bytes) return;
    const PaddedTail<kGroup> tail(group, n_chunks * kChunk, n_bytes);
    chunks<kGroup, true, false>(tail.group(), {first, n_carries, n_chunks}, to + n_chunks * sizeof(Values), 1);
  }

  // Combines the last group with all partials and writes the result to out.
  template <bool kPartials>
  void last_pass(const Group& group, const Block* partials, std::size_t n_partials, std::byte* out,
                 std::size_t n_bytes) const {
    switch (group.n_inputs) {
      case 1: return out_pass<1, kPartials>(group, partials, n_partials, out, n_bytes);
      case 2: return out_pass<2, kPartials>(group, partials, n_partials, out, n_bytes);
      case 3: return out_pass<3, kPartials>(group, partials, n_partials, out, n_bytes);
      default: return out_pass<4, kPartials>(group, partials, n_partials, out, n_bytes);
    }
  }

  template <std::size_t kInputs, bool kPartials>
  [[gnu::noinline]] void out_pass(const Group& group, const Block* partials, std::size_t n_partials, std::byte* out,
                                  std::size_t n_bytes) const {
    const std::size_t n_chunks = n_bytes / kChunk;
    const std::size_t n_whole_bytes = n_chunks * kChunk;
    chunks<kInputs, kPartials, true>(group, {partials, n_partials, 0}, out, n_chunks);
    if (n_whole_bytes == n_bytes) return;
    const PaddedTail<kInputs> tail(group, n_whole_bytes, n_bytes);
    std::byte padded[kChunk];
    chunks<kInputs, kPartials, true>(tail.group(), {partials, n_partials, n_chunks}, padded, 1);
    __builtin_memcpy(out + n_whole_bytes, padded, n_bytes - n_whole_bytes);
  }

  // A zero-filled chunk of each input that holds its bytes [from_bytes, n_bytes).
  template <std::size_t kInputs>
  class PaddedTail {
   public:
    PaddedTail(const Group& group, std::size_t from_bytes, std::size_t n_bytes) {
      for (std::size_t i = 0; i < kInputs; ++i) {
        __builtin_memcpy(bytes_[i], group.inputs[i] + group.offset_bytes + from_bytes, n_bytes - from_bytes);
        inputs_[i] = bytes_[i];
      }
    }
    Group group() const { return {inputs_, kInputs, 0}; }

   private:
    std::byte bytes_[kInputs][kChunk] = {};
    const std::byte* inputs_[kInputs];
  };

  // The only loop over elements. For each chunk: the leaf of the group's kInputs, merged with the partials from the
  // last to the first; written as a result (kLast) or as a partial result.
  template <std::size_t kInputs, bool kPartials, bool kLast>
  [[gnu::noinline]] void chunks(const Group& group, Partials partials, std::byte* to, std::size_t n_chunks) const {
    const Kernel self = *this;  // copies whose address does not escape: stores cannot alias them
    const std::byte* in[kInputs];
    for (std::size_t i = 0; i < kInputs; ++i) in[i] = group.inputs[i] + group.offset_bytes;
    for (std::size_t chunk = 0; chunk < n_chunks; ++chunk) {
      Values values = self.template leaf<kInputs>(in, chunk * kChunk);
      if constexpr (kPartials) values = merged(values, partials, chunk);
      if constexpr (kLast) {
        Codec::store(to + chunk * kChunk, self.finished(values));
      } else {
        store_vector(to + chunk * sizeof(Values), values);
      }
    }
  }

  [[gnu::always_inline]] static inline Values merged(Values values, const Partials& partials, std::size_t chunk) {
    for (std::size_t i = partials.count; i > 0; --i) {
      values = combined(partials.blocks[i - 1].values[partials.first_chunk + chunk], values);
    }
    return values;
  }

  template <std::size_t kInputs>
  [[gnu::always_inline]] inline Values leaf(const std::byte* const (&in)[kInputs], std::size_t at) const {
    if constexpr (kInputs == 1) return loaded(in[0] + at);
    if constexpr (kInputs == 2) return combined(loaded(in[0] + at), loaded(in[1] + at));
    if constexpr (kInputs == 3) {
      return combined(combined(loaded(in[0] + at), loaded(in[1] + at)), loaded(in[2] + at));
    }
    if constexpr (kInputs == 4) {
      return combined(combined(loaded(in[0] + at), loaded(in[1] + at)),
                      combined(loaded(in[2] + at), loaded(in[3] + at)));
    }
  }

  [[gnu::always_inline]] static inline Values combined(const Values& x, const Values& y) {
    return {Lanes::template combine<kOp>(x.a, y.a), Lanes::template combine<kOp>(x.b, y.b)};
  }
  [[gnu::always_inline]] inline Values loaded(const std::byte* from) const {
    const Values values = Codec::load(from);
    if constexpr (kScaled) return {values.a * prescale_, values.b * prescale_};
    return values;
  }
  [[gnu::always_inline]] inline Values finished(Values values) const {
    if constexpr (kScaled) values = {values.a * postscale_, values.b * postscale_};
    if constexpr (Codec::kFloating) return {Lanes::canonical(values.a), Lanes::canonical(values.b)};
    return values;
  }

  Scalar prescale_, postscale_;
};

template <class Codec, bool kScaled>
void reduce_floating(const VectorJob& job) {
  switch (job.op) {
    case ReduceOp::kMin: return Kernel<Codec, ReduceOp::kMin, kScaled>::run(job);
    case ReduceOp::kMax: return Kernel<Codec, ReduceOp::kMax, kScaled>::run(job);
    case ReduceOp::kProduct: return Kernel<Codec, ReduceOp::kProduct, kScaled>::run(job);
    default: return Kernel<Codec, ReduceOp::kSum, kScaled>::run(job);
  }
}

// Multiplying by exactly 1 changes no value, so one scaled kernel serves either factor.
template <class Codec>
void reduce_floating(const VectorJob& job) {
  if (job.prescale == 1.0 && job.postscale == 1.0) return reduce_floating<Codec, false>(job);
  reduce_floating<Codec, true>(job);
}

// Sums and products wrap, so the unsigned type's kernel serves the signed type too.
template <class L, class T, class Unsigned>
void reduce_integer(const VectorJob& job) {
  using Codec = PlainCodec<L, IntegerLanes<L, T>, false>;
  using UnsignedCodec = PlainCodec<L, IntegerLanes<L, Unsigned>, false>;
  switch (job.op) {
    case ReduceOp::kMin: return Kernel<Codec, ReduceOp::kMin, false>::run(job);
    case ReduceOp::kMax: return Kernel<Codec, ReduceOp::kMax, false>::run(job);
    case ReduceOp::kProduct: return Kernel<UnsignedCodec, ReduceOp::kProduct, false>::run(job);
    default: return Kernel<UnsignedCodec, ReduceOp::kSum, false>::run(job);
  }
}

template <class L>
void reduce_bool(const VectorJob& job) {
  if (job.op == ReduceOp::kMin) return Kernel<BoolCodec<L>, ReduceOp::kMin, false>::run(job);
  Kernel<BoolCodec<L>, ReduceOp::kMax, false>::run(job);
}

template <class L>
void reduce_level(const VectorJob& job) {
  switch (job.dtype) {
    case DataType::kBool: return reduce_bool<L>(job);
    case DataType::kUInt8: return reduce_integer<L, std::uint8_t, std::uint8_t>(job);
    case DataType::kUInt16: return reduce_integer<L, std::uint16_t, std::uint16_t>(job);
    case DataType::kUInt32: return reduce_integer<L, std::uint32_t, std::uint32_t>(job);
    case DataType::kUInt64: return reduce_integer<L, std::uint64_t, std::uint64_t>(job);
    case DataType::kInt8: return reduce_integer<L, std::int8_t, std::uint8_t>(job);
    case DataType::kInt16: return reduce_integer<L, std::int16_t, std::uint16_t>(job);
    case DataType::kInt32: return reduce_integer<L, std::int32_t, std::uint32_t>(job);
    case DataType::kInt64: return reduce_integer<L, std::int64_t, std::uint64_t>(job);
    case DataType::kFloat16: return reduce_floating<Float16Codec<L>>(job);
    case DataType::kBFloat16: return reduce_floating<BFloat16Codec<L>>(job);
    case DataType::kFloat32: return reduce_floating<PlainCodec<L, Float32Lanes<L>, true>>(job);
    case DataType::kFloat64: return reduce_floating<PlainCodec<L, Float64Lanes<L>, true>>(job);
  }
}

}  // namespace
}  // namespace ciranda::kernels
