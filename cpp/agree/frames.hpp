// Frames: messages in a stream of bytes. A frame is a 32-bit length and that many bytes, its body: a lane, a type and
// the message, little endian.
//
// Decoding trusts nothing: every length is checked against what is there before memory is asked for, and what is not
// exactly one well-formed message, or claims too much, is refused with the reason. One thread; plain values.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "agree/messages.hpp"
#include "base/status.hpp"

namespace ciranda {

inline constexpr std::size_t kFrameHeaderBytes = 4;
// A body is no longer: its message is cut or refused.
inline constexpr std::size_t kMaxFrameBytes = 64 << 20;

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out);
Result<Envelope> decode_body(std::span<const std::byte> body);

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
