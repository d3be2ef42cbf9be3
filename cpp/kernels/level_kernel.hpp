// The only loop over elements, as a table of its instances for one codec, one operator and one kind of scaling.
//
// Included by level_*.cc only; the rules of level_vector.hpp hold.
//
// Called by level_reduce.hpp; pure.
#pragma once

#include "kernels/level_codecs.hpp"

namespace ciranda::kernels {
namespace {  // NOLINT(google-build-namespaces): see level_vector.hpp

inline constexpr std::size_t kGroup = 8;          // the most inputs that are combined in registers
inline constexpr std::size_t kBlockBytes = 4096;  // of one partial result; stays in the first-level cache

// The scaling of an element before and after the operator. Weights and divisors are for sums only.
enum class OfInputs : std::uint8_t { kAsIs, kScaled, kWeighted };  // kWeighted: a separate factor for each input
enum class OfResult : std::uint8_t { kAsIs, kScaled, kDivided };   // kDivided: divided, then scaled

struct Scaling {
  OfInputs inputs = OfInputs::kAsIs;
  OfResult result = OfResult::kAsIs;
};

struct Group {
  const std::byte* const* inputs;
  std::size_t offset_bytes;  // into each input
  const double* weights;     // one for each input; null unless kWeighted
};

// A partial result for a block of elements, stored as registers, in the codec's order of lanes.
struct alignas(64) Block {
  std::byte bytes[kBlockBytes];
};

struct Partials {
  const Block* blocks;
  std::size_t count;
  std::size_t first_chunk;  // of each block, where the group's first chunk belongs
};

struct Factors {
  double prescale;
  double divisor;
  double postscale;
};

// Reduces n_chunks whole chunks of a group, merges them with the partial results from the last to the first, and writes
// a result or a partial result to `to`.
using ChunksFunction = void (*)(const Group& group, const Partials& partials, const Factors& factors, std::byte* to,
                                std::size_t n_chunks);

// A kernel, as the driver (level_reduce.hpp) sees it.
struct KernelTable {
  std::size_t chunk_bytes;          // of a chunk in a tensor
  std::size_t partial_chunk_bytes;  // of a chunk in a Block
  ChunksFunction last[kGroup];      // last[k - 1] reduces k inputs to a result
  ChunksFunction group;             // reduces kGroup inputs to a partial result
};

template <class Codec, ReduceOp kOp, Scaling kScaling>
class Kernel {
 public:
  static constexpr KernelTable table() {
    return {kChunk,
            sizeof(Values),
            {chunks<1, true>, chunks<2, true>, chunks<3, true>, chunks<4, true>, chunks<5, true>, chunks<6, true>,
             chunks<7, true>, chunks<8, true>},
            chunks<kGroup, false>};
  }

 private:
  using Lanes = typename Codec::Lanes;
  using Scalar = typename Codec::Scalar;
  using Values = Pair<Lanes>;
  static constexpr std::size_t kChunk = Codec::kChunkBytes;
  static constexpr bool kWeighted = kScaling.inputs == OfInputs::kWeighted;

  template <std::size_t kInputs, bool kLast>
  static void chunks(const Group& group, const Partials& partials, const Factors& factors, std::byte* to,
                     std::size_t n_chunks) {
    // The compiler keeps these copies in registers: as their addresses do not escape, no store can alias them.
    Scalar prescale[kWeighted ? kInputs : 1];
    if constexpr (kWeighted) {
      for (std::size_t i = 0; i < kInputs; ++i) prescale[i] = static_cast<Scalar>(factors.prescale * group.weights[i]);
    } else {
      prescale[0] = static_cast<Scalar>(factors.prescale);
    }
    const auto divisor = static_cast<Scalar>(factors.divisor);
    const auto postscale = static_cast<Scalar>(factors.postscale);
    const Partials own_partials = partials;
    const std::byte* in[kInputs];
    for (std::size_t i = 0; i < kInputs; ++i) in[i] = group.inputs[i] + group.offset_bytes;
    for (std::size_t chunk = 0; chunk < n_chunks; ++chunk) {
      const Values values = merged(leaf<0, kInputs>(in, chunk * kChunk, prescale), own_partials, chunk);
      if constexpr (kLast) {
        Codec::store(to + chunk * kChunk, finished(values, divisor, postscale));
      } else {
        store_vector(to + chunk * sizeof(Values), values);
      }
    }
  }

  // The tree over inputs [kBegin, kEnd): the left part is the largest power of two smaller than the range.
  template <std::size_t kBegin, std::size_t kEnd>
  [[gnu::always_inline]] static inline Values leaf(const std::byte* const* in, std::size_t at, const Scalar* prescale) {
    if constexpr (kEnd - kBegin == 1) {
      return loaded(in[kBegin] + at, prescale[kWeighted ? kBegin : 0]);
    } else {
      constexpr std::size_t kMiddle = kBegin + (kEnd - kBegin > 4 ? 4 : (kEnd - kBegin > 2 ? 2 : 1));
      return combined(leaf<kBegin, kMiddle>(in, at, prescale), leaf<kMiddle, kEnd>(in, at, prescale));
    }
  }

  [[gnu::always_inline]] static inline Values merged(Values values, const Partials& partials, std::size_t chunk) {
    const std::size_t at = (partials.first_chunk + chunk) * sizeof(Values);
    for (std::size_t i = partials.count; i > 0; --i) {
      Values partial;
      load_vector(partials.blocks[i - 1].bytes + at, partial);
      values = combined(partial, values);
    }
    return values;
  }

  [[gnu::always_inline]] static inline Values combined(const Values& x, const Values& y) {
    return {Lanes::template combine<kOp>(x.a, y.a), Lanes::template combine<kOp>(x.b, y.b)};
  }

  [[gnu::always_inline]] static inline Values loaded(const std::byte* from, Scalar prescale) {
    const Values values = Codec::load(from);
    if constexpr (kScaling.inputs == OfInputs::kAsIs) return values;
    return {values.a * prescale, values.b * prescale};
  }

  [[gnu::always_inline]] static inline Values finished(Values values, Scalar divisor, Scalar postscale) {
    if constexpr (kScaling.result == OfResult::kDivided) values = {values.a / divisor, values.b / divisor};
    if constexpr (kScaling.result != OfResult::kAsIs) values = {values.a * postscale, values.b * postscale};
    if constexpr (Codec::kFloating) return {Lanes::canonical(values.a), Lanes::canonical(values.b)};
    return values;
  }
};

}  // namespace
}  // namespace ciranda::kernels
