#include "collective/adasum.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/adasum.hpp"

namespace ciranda {
namespace {

using kernels::Dots;
using kernels::kAdasumBlock;

struct Range {
  std::size_t begin;
  std::size_t end;
  std::size_t size() const { return end - begin; }
};

// Divides all tensors, one after the other, into blocks, and assigns an owner to each block. A position is an index in
// the list of contributors.
class Shares {
 public:
  struct Block {
    std::size_t tensor;
    std::size_t begin;  // index of an element, counted over all tensors
    std::size_t count;
  };

  Shares(std::span<const AdasumTensor> tensors, std::size_t n_owners) : n_owners_(n_owners) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (std::size_t at = 0; at < tensors[i].count; at += kAdasumBlock) {
        blocks_.push_back({i, n_elements_, std::min(kAdasumBlock, tensors[i].count - at)});
        n_elements_ += blocks_.back().count;
      }
    }
  }

  std::span<const Block> blocks() const { return blocks_; }
  Range blocks_of(std::size_t position) const {
    return {blocks_.size() * position / n_owners_, blocks_.size() * (position + 1) / n_owners_};
  }
  Range elements_of(std::size_t position) const {
    const Range blocks = blocks_of(position);
    return {first_element(blocks.begin), first_element(blocks.end)};
  }
  std::size_t most_blocks() const { return most(&Shares::blocks_of); }
  std::size_t most_elements() const { return most(&Shares::elements_of); }

 private:
  std::size_t first_element(std::size_t block) const {
    return block < blocks_.size() ? blocks_[block].begin : n_elements_;
  }
  std::size_t most(Range (Shares::*part)(std::size_t) const) const {
    std::size_t size = 0;
    for (std::size_t position = 0; position < n_owners_; ++position) {
      size = std::max(size, (this->*part)(position).size());
    }
    return size;
  }

  std::size_t n_owners_;
  std::size_t n_elements_ = 0;
  std::vector<Block> blocks_;
};

// T is the type of the computation.
template <class T>
class AdasumOf final : public Adasum {
 public:
  AdasumOf(AdasumOptions options, std::span<const AdasumTensor> tensors)
      : options_(std::move(options)),
        n_tensors_(tensors.size()),
        element_bytes_(size_of(options_.dtype)),
        shares_(tensors, options_.contributors.size()) {
    const auto own = std::find(options_.contributors.begin(), options_.contributors.end(), options_.rank);
    if (own == options_.contributors.end()) return;
    is_contributor_ = true;
    position_ = static_cast<std::size_t>(own - options_.contributors.begin());
    values_.resize(elements().size() * n_summands());
    if (!is_computed_in()) arrivals_.resize(values_.size() * element_bytes_);
    for (const AdasumTensor& tensor : tensors) {
      input_.add(tensor.input, tensor.count * element_bytes_);
      output_.add(tensor.output, tensor.count * element_bytes_);
    }
  }

  std::optional<Plan> next() override {
    switch (stage_) {
      case Stage::kExchange: stage_ = Stage::kLoad; return exchange();
      case Stage::kLoad:
        load();
        stage_ = Stage::kCombine;
        return dots_or_results();
      case Stage::kCombine:
        combine();
        stride_ *= 2;
        return dots_or_results();
      case Stage::kDone: break;
    }
    return std::nullopt;
  }

 private:
  enum class Stage : std::uint8_t { kExchange, kLoad, kCombine, kDone };

  std::size_t n_summands() const { return options_.contributors.size(); }
  std::size_t rank_at(std::size_t position) const { return static_cast<std::size_t>(options_.contributors[position]); }
  bool is_computed_in() const { return element_bytes_ == sizeof(T); }  // true if elements need no conversion
  Range elements() const { return shares_.elements_of(position_); }
  Range blocks() const { return shares_.blocks_of(position_); }

  // This rank's share of the tensors of the contributor at `position`.
  std::span<T> summand(std::size_t position) {
    return std::span(values_).subspan(position * elements().size(), elements().size());
  }

  // The number of pairs at this level: pair p has the positions p * 2 * stride and p * 2 * stride + stride.
  std::size_t n_pairs() const { return (n_summands() + stride_ - 1) / (2 * stride_); }
  Dots& dots_of(std::size_t block, std::size_t pair) { return dots_[block * n_pairs() + pair]; }

  template <class Byte>
  PieceList<Byte> part(const PieceList<Byte>& whole, Range range) const {
    return whole.part(range.begin * element_bytes_, range.size() * element_bytes_);
  }

  Plan plan_of(Collective collective, std::size_t n_bytes) const {
    Plan plan;
    plan.collective = collective;
    plan.n_bytes = n_bytes;
    plan.receivers = options_.contributors;
    plan.output_by_rank.resize(static_cast<std::size_t>(options_.n_ranks));
    return plan;
  }

  Plan exchange() {
    Plan plan = plan_of(Collective::kAlltoall, shares_.most_elements() * element_bytes_);
    plan.input_by_rank.resize(plan.output_by_rank.size());
    if (!is_contributor_) return plan;
    std::byte* to = is_computed_in() ? std::as_writable_bytes(std::span(values_)).data() : arrivals_.data();
    const std::size_t n_bytes = elements().size() * element_bytes_;
    for (std::size_t i = 0; i < n_summands(); ++i, to += n_bytes) {
      plan.input_by_rank[rank_at(i)] = part(input_, shares_.elements_of(i));
      plan.output_by_rank[rank_at(i)].add(to, n_bytes);
    }
    return plan;
  }

  void load() {
    if constexpr (std::is_same_v<T, double>) {
      if (options_.prescale != 1.0) kernels::scale(options_.prescale, values_);
    } else {
      const auto arrived = is_computed_in() ? std::as_bytes(std::span(values_)) : std::as_bytes(std::span(arrivals_));
      kernels::widen(options_.dtype, arrived.data(), options_.prescale, values_);
      arrivals_ = std::vector<std::byte>();  // freed: it is as large as the tensor
    }
  }

  Plan dots_or_results() {
    if (stride_ < n_summands()) return exchange_dots();
    stage_ = Stage::kDone;
    if (is_contributor_) store();
    return exchange_results();
  }

  Plan exchange_dots() {
    Plan plan = plan_of(Collective::kAllgather, shares_.most_blocks() * n_pairs() * sizeof(Dots));
    if (!is_contributor_) return plan;
    dots_.assign(shares_.blocks().size() * n_pairs(), {});
    const std::size_t begin = elements().begin;
    for (std::size_t i = blocks().begin; i < blocks().end; ++i) {
      const Shares::Block& block = shares_.blocks()[i];
      for (std::size_t pair = 0; pair < n_pairs(); ++pair) {
        const std::span<const T> a = summand(pair * 2 * stride_).subspan(block.begin - begin, block.count);
        const std::span<const T> b = summand(pair * 2 * stride_ + stride_).subspan(block.begin - begin, block.count);
        dots_of(i, pair) = kernels::dots(a, b);
      }
    }
    for (std::size_t i = 0; i < n_summands(); ++i) {
      const Range range = shares_.blocks_of(i);
      const auto bytes =
          std::as_writable_bytes(std::span(dots_).subspan(range.begin * n_pairs(), range.size() * n_pairs()));
      plan.output_by_rank[rank_at(i)].add(bytes.data(), bytes.size());
      if (i == position_) plan.input.add(bytes.data(), bytes.size());
    }
    return plan;
  }

  void combine() {
    if (!is_contributor_) return;
    const std::size_t begin = elements().begin;
    for (std::size_t pair = 0; pair < n_pairs(); ++pair) {
      std::vector<Dots> of_tensors(n_tensors_);
      for (std::size_t i = 0; i < shares_.blocks().size(); ++i) {
        of_tensors[shares_.blocks()[i].tensor].add(dots_of(i, pair));
      }
      const std::span<T> a = summand(pair * 2 * stride_);
      const std::span<const T> b = summand(pair * 2 * stride_ + stride_);
      for (const Shares::Block& block : shares_.blocks().subspan(blocks().begin, blocks().size())) {
        const std::size_t at = block.begin - begin;
        kernels::adasum(of_tensors[block.tensor], a.subspan(at, block.count), b.subspan(at, block.count));
      }
    }
  }

  // Writes this rank's share of the result into the output.
  void store() {
    const std::span<T> result = summand(0);
    if constexpr (std::is_same_v<T, double>) kernels::scale(options_.postscale, result);
    const PieceList<std::byte> to = part(output_, elements());
    to.for_range(0, to.n_bytes(), [&](std::span<std::byte> piece, std::size_t at) {
      const std::span<const T> from = result.subspan(at / element_bytes_, piece.size() / element_bytes_);
      if constexpr (std::is_same_v<T, double>) {
        std::memcpy(piece.data(), from.data(), piece.size());
      } else {
        kernels::narrow(options_.dtype, from, options_.postscale, piece.data());
      }
    });
  }

  Plan exchange_results() {
    Plan plan = plan_of(Collective::kAllgather, shares_.most_elements() * element_bytes_);
    if (!is_contributor_) return plan;
    for (std::size_t i = 0; i < n_summands(); ++i) {
      plan.output_by_rank[rank_at(i)] = part(output_, shares_.elements_of(i));
    }
    for (const std::span<std::byte> piece : plan.output_by_rank[rank_at(position_)].pieces()) {
      plan.input.add(piece.data(), piece.size());
    }
    return plan;
  }

  AdasumOptions options_;
  std::size_t n_tensors_;
  std::size_t element_bytes_;
  Shares shares_;
  bool is_contributor_ = false;
  std::size_t position_ = 0;
  InputPieces input_;
  OutputPieces output_;
  Stage stage_ = Stage::kExchange;
  std::size_t stride_ = 1;           // between the summands of a pair
  std::vector<std::byte> arrivals_;  // received elements of 16-bit types
  std::vector<T> values_;            // this rank's share of every summand
  std::vector<Dots> dots_;           // for every block, of all pairs of the level
};

}  // namespace

std::unique_ptr<Adasum> make_adasum(AdasumOptions options, std::span<const AdasumTensor> tensors) {
  if (options.dtype == DataType::kFloat64) return std::make_unique<AdasumOf<double>>(std::move(options), tensors);
  return std::make_unique<AdasumOf<float>>(std::move(options), tensors);
}

}  // namespace ciranda
