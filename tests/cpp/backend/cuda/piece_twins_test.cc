// The kernels that go through many ranges at once: copies and checksums.
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "backend/cuda/twin_launch.hpp"
#include "base/checksum.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace ciranda::cuda {
namespace {

using testing::Bytes;
using testing::Shape;
using testing::Tensor;

constexpr std::array kLaunchShapes{Shape{1, 1}, Shape{3, 32}, Shape{8, 256}, Shape{1000, 4}};

// Counts of elements: none, few, around a vector, around a chunk, several chunks.
const std::vector<std::size_t> kRangeCounts{0,           1,      2, 3, 15, 16, 17, 0, 100, 1000, kChunkBytes - 1,
                                            kChunkBytes, 40'001, 0, 5};

// Ranges of memory, each with its own alignment on both sides.
class Ranges {
 public:
  // steps: how much further each next range is misaligned.
  Ranges(const std::vector<Bytes>& contents, std::size_t from_step, std::size_t to_step, bool in_place = false) {
    for (std::size_t i = 0; i < contents.size(); ++i) {
      from_.emplace_back(contents[i], i * from_step % 16);
      to_.emplace_back(contents[i].size(), i * to_step % 16);
    }
    for (std::size_t i = 0; i < contents.size(); ++i) {
      pieces_.push_back({from_[i].data(), in_place ? from_[i].data() : to_[i].data(), contents[i].size(), 0});
    }
    in_place_ = in_place;
  }

  Pieces pieces(std::uint64_t chunk_bytes) {
    const std::uint64_t n_chunks = number_chunks(pieces_, chunk_bytes);
    return {pieces_.data(), pieces_.size(), n_chunks};
  }
  Piece& piece(std::size_t i) { return pieces_[i]; }
  Bytes result(std::size_t i) const { return in_place_ ? from_[i].content() : to_[i].content(); }
  bool guards_stand() const {
    const auto stands = [](const Tensor& tensor) { return tensor.guards_stand(); };
    return std::all_of(from_.begin(), from_.end(), stands) && std::all_of(to_.begin(), to_.end(), stands);
  }

 private:
  std::vector<Tensor> from_;
  std::vector<Tensor> to_;
  std::vector<Piece> pieces_;
  bool in_place_ = false;
};

std::vector<Bytes> contents_of(DataType dtype) {
  std::vector<Bytes> contents;
  for (const std::size_t count : kRangeCounts) {
    contents.push_back(kernels::testing::make_inputs(dtype, 1, count, 20 + count)[0]);
  }
  return contents;
}

TEST(CopyTwin, CopiesAnyAlignment) {
  const std::vector<Bytes> contents = contents_of(DataType::kUInt8);
  for (std::size_t from_step = 0; from_step < 16; ++from_step) {
    for (const std::size_t to_step : {0U, 1U, 2U, 4U, 7U, 8U}) {
      Ranges ranges(contents, from_step, to_step);
      testing::launch(Kernel::copy_bytes, CopyArguments{ranges.pieces(kChunkBytes)},
                      kLaunchShapes[from_step % kLaunchShapes.size()]);
      for (std::size_t i = 0; i < contents.size(); ++i) {
        ASSERT_TRUE(ranges.result(i) == contents[i]) << i << " " << from_step << " " << to_step;
      }
      ASSERT_TRUE(ranges.guards_stand()) << from_step << " " << to_step;
    }
  }
}

TEST(CopyTwin, CopiesEverySizeAndAlignmentOfOneRange) {
  for (std::size_t n_bytes = 0; n_bytes < 100; n_bytes += n_bytes < 40 ? 1 : 7) {
    const Bytes content = kernels::testing::make_inputs(DataType::kUInt8, 1, n_bytes, n_bytes)[0];
    for (std::size_t from = 0; from < 16; ++from) {
      for (std::size_t to = 0; to < 16; ++to) {
        const Tensor source(content, from);
        Tensor destination(n_bytes, to);
        Piece piece{source.data(), destination.data(), n_bytes, 0};
        const std::uint64_t n_chunks = number_chunks({&piece, 1}, kChunkBytes);
        testing::launch(Kernel::copy_bytes, CopyArguments{{&piece, 1, n_chunks}}, {1, 8});
        ASSERT_TRUE(destination.content() == content) << n_bytes << " " << from << " " << to;
        ASSERT_TRUE(destination.guards_stand()) << n_bytes << " " << from << " " << to;
      }
    }
  }
}

TEST(CopyTwin, TakesNoRangesAndOnlyEmptyOnes) {
  testing::launch(Kernel::copy_bytes, CopyArguments{{nullptr, 0, 0}});
  Ranges ranges({Bytes{}, Bytes{}, Bytes{}}, 0, 0);
  testing::launch(Kernel::copy_bytes, CopyArguments{ranges.pieces(kChunkBytes)});
}

TEST(ChecksumTwin, MatchesTheHost) {
  std::vector<Bytes> contents = contents_of(DataType::kUInt8);
  for (const std::size_t n_bytes : {ciranda::kChecksumBlockBytes, ciranda::kChecksumBlockBytes + 1,
                                    2 * ciranda::kChecksumBlockBytes - 1, std::size_t{3 * kChecksumChunkBytes + 77}}) {
    contents.push_back(kernels::testing::make_inputs(DataType::kUInt8, 1, n_bytes, n_bytes)[0]);
  }
  for (const Shape& shape : kLaunchShapes) {
    for (std::size_t step = 0; step < 16; ++step) {
      Ranges ranges(contents, step, 0);
      std::vector<std::uint64_t> totals(contents.size());
      for (std::size_t i = 0; i < contents.size(); ++i) ranges.piece(i).to = &totals[i];
      testing::launch(Kernel::add_checksums, ChecksumArguments{ranges.pieces(kChecksumChunkBytes)}, shape);
      for (std::size_t i = 0; i < contents.size(); ++i) {
        ASSERT_EQ(checksum_of_total(totals[i], contents[i].size()), checksum(contents[i])) << i << " " << step;
      }
    }
  }
}

}  // namespace
}  // namespace ciranda::cuda
