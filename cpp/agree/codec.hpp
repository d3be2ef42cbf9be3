// Messages as bytes, and back: a lane, a type and the message, little endian. frames.hpp puts them into a stream.
//
// Decoding trusts nothing: every length is checked against what is there before memory is asked for, and what is not
// exactly one well-formed message is refused with the reason.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "agree/messages.hpp"
#include "base/status.hpp"

namespace ciranda {

// A message is cut (frames.hpp) or refused rather than longer.
inline constexpr std::size_t kMaxFrameBytes = 64 << 20;

void append_body(LaneId lane, const Message& message, std::vector<std::byte>& out);
// `body`: of a frame, without its header.
Result<Envelope> decode_body(std::span<const std::byte> body);

}  // namespace ciranda
