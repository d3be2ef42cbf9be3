// PieceList: pieces of memory as one range; every sub-range read and written against a plain copy.
#include "fuse/piece_list.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace ciranda {
namespace {

using Bytes = std::vector<std::byte>;

// Pieces of the given sizes with different content everywhere, and that content in one range.
struct Pieces {
  explicit Pieces(const std::vector<std::size_t>& sizes) {
    unsigned next = 0;
    for (const std::size_t size : sizes) {
      Bytes& bytes = memory.emplace_back(size);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(++next * 37);
      whole.insert(whole.end(), bytes.begin(), bytes.end());
      input.add(bytes.data(), bytes.size());
      output.add(bytes.data(), bytes.size());
    }
  }
  Bytes content() const {
    Bytes out;
    for (const Bytes& bytes : memory) out.insert(out.end(), bytes.begin(), bytes.end());
    return out;
  }

  std::vector<Bytes> memory;
  Bytes whole;
  InputPieces input;
  OutputPieces output;
};

const std::vector<std::vector<std::size_t>> kLayouts{{},          {1}, {7}, {3, 5}, {1, 1, 1, 1}, {0, 4, 0, 0, 6, 0},
                                                     {2, 9, 1, 4}};

TEST(PieceList, CountsItsBytesAndDropsEmptyPieces) {
  for (const auto& sizes : kLayouts) {
    const Pieces pieces(sizes);
    EXPECT_EQ(pieces.input.n_bytes(), pieces.whole.size());
    for (const auto& piece : pieces.input.pieces()) EXPECT_FALSE(piece.empty());
  }
  EXPECT_EQ(InputPieces().n_bytes(), 0U);
  EXPECT_TRUE(InputPieces(nullptr, 0).pieces().empty());
}

TEST(PieceList, GathersEveryRange) {
  for (const auto& sizes : kLayouts) {
    const Pieces pieces(sizes);
    for (std::size_t from = 0; from <= pieces.whole.size(); ++from) {
      for (std::size_t n = 0; from + n <= pieces.whole.size(); ++n) {
        Bytes read(n);
        gather(pieces.input, from, read);
        const auto start = pieces.whole.begin() + static_cast<std::ptrdiff_t>(from);
        EXPECT_EQ(read, Bytes(start, start + static_cast<std::ptrdiff_t>(n))) << from << " + " << n;
      }
    }
  }
}

TEST(PieceList, ScattersIntoEveryRangeAndNowhereElse) {
  for (const auto& sizes : kLayouts) {
    const std::size_t n_bytes = Pieces(sizes).whole.size();
    for (std::size_t from = 0; from <= n_bytes; ++from) {
      for (std::size_t n = 0; from + n <= n_bytes; ++n) {
        Pieces pieces(sizes);
        const Bytes written(n, std::byte{0xee});
        scatter(pieces.output, from, written);
        Bytes expected = pieces.whole;
        std::copy(written.begin(), written.end(), expected.begin() + static_cast<std::ptrdiff_t>(from));
        EXPECT_EQ(pieces.content(), expected) << from << " + " << n;
      }
    }
  }
}

TEST(PieceList, KnowsWhatLiesInOnePiece) {
  const Pieces pieces({2, 9, 1, 4});
  for (std::size_t from = 0; from <= 16; ++from) {
    for (std::size_t n = 0; from + n <= 16; ++n) {
      const auto piece_of = [](std::size_t at) { return at < 2 ? 0 : at < 11 ? 1 : at < 12 ? 2 : 3; };
      const bool is_whole = n > 0 && piece_of(from) == piece_of(from + n - 1);
      const auto found = pieces.input.contiguous(from, n);
      ASSERT_EQ(found.size(), is_whole ? n : 0U) << from << " + " << n;
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], pieces.whole[from + i]);
    }
  }
}

TEST(PieceList, VisitsARangeInOrderWithoutGapsOrOverlaps) {
  std::mt19937_64 random(5);
  std::vector<std::size_t> sizes(200);
  for (std::size_t& size : sizes) size = random() % 40;
  const Pieces pieces(sizes);
  for (int i = 0; i < 500; ++i) {
    const std::size_t from = random() % pieces.whole.size();
    const std::size_t n = random() % (pieces.whole.size() - from + 1);
    std::size_t expected_at = 0;
    pieces.input.for_range(from, n, [&](std::span<const std::byte> part, std::size_t at) {
      EXPECT_EQ(at, expected_at);
      EXPECT_FALSE(part.empty());
      expected_at += part.size();
    });
    EXPECT_EQ(expected_at, n);
  }
}

}  // namespace
}  // namespace ciranda
