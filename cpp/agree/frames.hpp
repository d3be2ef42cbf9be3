// Frames: messages in a stream of bytes. A frame is a 32-bit length and that many bytes of a message (codec.hpp).
//
// One thread; plain values. A frame that claims too much, or is no message, is refused with the reason.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "agree/codec.hpp"
#include "agree/messages.hpp"
#include "base/status.hpp"

namespace ciranda {

inline constexpr std::size_t kFrameHeaderBytes = 4;

// Appends the whole frame, header included. What does not fit one travels in several, which mean the same: a log or a
// list of reports is cut between its items. One item that is too large by itself (no request is, only a response
// for very many tensors of very many ranks) becomes an Abort that says so: its reader cannot be left without it.
void append_frame(LaneId lane, const Message& message, std::vector<std::byte>& out,
                  std::size_t max_bytes = kMaxFrameBytes);

// Finds the frames in the bytes of a stream. Those that come in one piece are read where they lie.
class FrameReader {
 public:
  // The bytes stay where they are until next() returns nothing. REQUIRES: it has, since the last append().
  void append(std::span<const std::byte> bytes) { came_ = bytes; }

  // The next whole frame's message; nothing when more bytes are needed; the error of a frame that cannot be read (the
  // stream is then useless).
  std::optional<Result<Envelope>> next();

 private:
  void complete(std::size_t n_bytes);

  std::vector<std::byte> begun_;  // a frame that lacks bytes
  std::span<const std::byte> came_;
};

}  // namespace ciranda
