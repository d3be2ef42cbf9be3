// PieceList: several pieces of memory as one range of bytes, in order. This is virtual fusion: no bytes are copied to
// fuse tensors; transfers read from, and write to, the tensors themselves.
//
// It owns no memory. Called by collective/, Plan, NativeBackend, NcclSettling and copies.hpp, and through Plan by
// execute/; one thread, or several that only read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/copy_bytes.hpp"

namespace ciranda {

template <typename Byte>
class PieceList {
 public:
  PieceList() = default;
  PieceList(Byte* data, std::size_t n_bytes) { add(data, n_bytes); }

  void add(Byte* data, std::size_t n_bytes) {
    if (n_bytes == 0) return;
    if (n_bytes_ == 0) {
      first_ = std::span<Byte>(data, n_bytes);
    } else {
      if (pieces_.empty()) append(first_, 0);
      append(std::span<Byte>(data, n_bytes), n_bytes_);
    }
    n_bytes_ += n_bytes;
  }

  std::size_t n_bytes() const { return n_bytes_; }
  // Valid until add() is called, or this list is moved.
  std::span<const std::span<Byte>> pieces() const {
    if (!pieces_.empty()) return pieces_;
    return {&first_, n_bytes_ > 0 ? 1U : 0U};
  }

  // The bytes from `offset` to the end of its piece. REQUIRES: offset < n_bytes().
  std::span<Byte> at(std::size_t offset) const {
    if (pieces_.empty()) return first_.subspan(offset);
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
    const auto index = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return pieces_[index].subspan(offset - starts_[index]);
  }

  // The whole range if it lies in one piece, else an empty span. REQUIRES: offset + n_bytes <= this->n_bytes().
  std::span<Byte> contiguous(std::size_t offset, std::size_t n_bytes) const {
    if (n_bytes == 0) return {};
    const std::span<Byte> piece = at(offset);
    return piece.size() >= n_bytes ? piece.first(n_bytes) : std::span<Byte>{};
  }

  // REQUIRES: as for contiguous().
  PieceList part(std::size_t offset, std::size_t n_bytes) const {
    PieceList part;
    for_range(offset, n_bytes,
              [&](std::span<Byte> piece, std::size_t /*at*/) { part.add(piece.data(), piece.size()); });
    return part;
  }

  // Calls visit(span, offset within the range) for each part of [offset, offset + n_bytes), in order.
  template <typename Visit>
  void for_range(std::size_t offset, std::size_t n_bytes, Visit visit) const {
    for (std::size_t done = 0; done < n_bytes;) {
      const std::span<Byte> piece = at(offset + done);
      const std::size_t n = std::min(piece.size(), n_bytes - done);
      visit(piece.first(n), done);
      done += n;
    }
  }

 private:
  void append(std::span<Byte> piece, std::size_t start) {
    starts_.push_back(start);
    pieces_.push_back(piece);
  }

  // Most lists have one piece; it is stored here, without allocation.
  std::span<Byte> first_;
  std::vector<std::span<Byte>> pieces_;  // all pieces, if there are several
  std::vector<std::size_t> starts_;      // offset of each piece
  std::size_t n_bytes_ = 0;
};

using InputPieces = PieceList<const std::byte>;
using OutputPieces = PieceList<std::byte>;

// Pack: pieces -> destination.
inline void gather(const InputPieces& pieces, std::size_t offset, std::span<std::byte> destination) {
  pieces.for_range(offset, destination.size(), [&](std::span<const std::byte> part, std::size_t at) {
    copy_bytes(destination.data() + at, part.data(), part.size());
  });
}

// The same, into memory that other ranks will read.
inline void gather_for_others(const InputPieces& pieces, std::size_t offset, std::span<std::byte> destination,
                              ReadLast read_last) {
  pieces.for_range(offset, destination.size(), [&](std::span<const std::byte> part, std::size_t at) {
    copy_for_others(destination.data() + at, part.data(), part.size(), read_last);
  });
}

// The range of staging.size() bytes at `offset`: in place if it is in one piece, otherwise gathered into `staging`.
inline const std::byte* contiguous_or_gathered(const InputPieces& pieces, std::size_t offset,
                                               std::span<std::byte> staging) {
  const auto in_place = pieces.contiguous(offset, staging.size());
  if (!in_place.empty()) return in_place.data();
  gather(pieces, offset, staging);
  return staging.data();
}

// Unpack: source -> pieces.
inline void scatter(const OutputPieces& pieces, std::size_t offset, std::span<const std::byte> source) {
  pieces.for_range(offset, source.size(), [&](std::span<std::byte> part, std::size_t at) {
    copy_bytes(part.data(), source.data() + at, part.size());
  });
}

// Copies between lists of the same length, skipping bytes that are the same memory. REQUIRES: offset + n_bytes <=
// to.n_bytes().
inline void copy_pieces(const InputPieces& from, const OutputPieces& to, std::size_t offset, std::size_t n_bytes) {
  to.for_range(offset, n_bytes, [&](std::span<std::byte> part, std::size_t at) {
    from.for_range(offset + at, part.size(), [&](std::span<const std::byte> source, std::size_t inner) {
      std::byte* destination = part.data() + inner;
      if (source.data() != destination) copy_bytes(destination, source.data(), source.size());
    });
  });
}

inline void copy_pieces(const InputPieces& from, const OutputPieces& to) { copy_pieces(from, to, 0, to.n_bytes()); }

}  // namespace ciranda
