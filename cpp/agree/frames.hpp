// Frames: messages in a stream of bytes. A frame is a 32-bit length and that many bytes, its body: a lane, a type and
// the message, little endian.
//
// Decoding trusts no input: every length is checked against the bytes present before memory is allocated, and a body
// that is not exactly one well-formed message, or claims too much, is refused with the reason. Called by ControlPlane;
// defined in agree/codec.cc; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "agree/messages.hpp"
#include "base/status.hpp"

namespace ciranda {

inline constexpr std::size_t kFrameHeaderBytes = 4;
// The limit of a body: a larger message is split or refused.
inline constexpr std::size_t kMaxFrameBytes = 64 << 20;

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out);
Result<Envelope> decode_body(std::span<const std::byte> body);

// Appends a whole frame, header included. A message that does not fit into one frame is split into several with the
// same meaning: a log or a list of reports is split between its items. A single item that is too large (only a response
// for very many tensors of very many ranks, never a request) becomes an Abort that states this, because its reader
// cannot continue without the item.
void append_frame(LaneId lane, const Message& message, std::vector<std::byte>& out,
                  std::size_t max_bytes = kMaxFrameBytes);

// Finds the frames in a stream of bytes. A frame that arrives in one piece is read in place.
class FrameReader {
 public:
  // The bytes must stay valid until next() returns nothing. REQUIRES: next() has done so since the last append().
  void append(std::span<const std::byte> bytes) { unread_ = bytes; }

  // The message of the next whole frame; nothing if more bytes are needed; an error if it cannot be read: the stream is
  // then unusable.
  std::optional<Result<Envelope>> next();

 private:
  void complete(std::size_t n_bytes);

  std::vector<std::byte> begun_;  // an incomplete frame
  std::span<const std::byte> unread_;
};

}  // namespace ciranda
