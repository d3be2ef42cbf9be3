#include "agree/frames.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ciranda {
namespace {

using Halves = std::optional<std::pair<Message, Message>>;

template <typename T, typename Item>
Halves halves_of(const Message& message, std::vector<Item> T::*items) {
  const auto* whole = std::get_if<T>(&message);
  if (whole == nullptr || (whole->*items).size() < 2) return std::nullopt;
  T first;
  T second = *whole;  // copies the fields other than the items
  std::vector<Item>& rest = second.*items;
  const auto middle = rest.begin() + static_cast<std::ptrdiff_t>(rest.size() / 2);
  (first.*items).assign(rest.begin(), middle);
  rest.erase(rest.begin(), middle);
  return Halves({std::move(first), std::move(second)});
}

// Two messages that together mean the same as this one; nothing if it cannot be split.
Halves cut_in_two(const Message& message) {
  if (Halves log = halves_of(message, &LogMessage::entries)) return log;
  if (Halves ready = halves_of(message, &ReadyMessage::items)) return ready;
  return halves_of(message, &RelayedMessage::items);
}

std::string name_in(const Message& message) {
  const auto* log = std::get_if<LogMessage>(&message);
  const auto* entry = log != nullptr && !log->entries.empty() ? std::get_if<ExecuteEntry>(&log->entries[0]) : nullptr;
  return entry != nullptr && !entry->items.empty() ? " for '" + entry->items[0].name + "'" : "";
}

AbortMessage too_large(const Message& message, std::size_t n_bytes, std::size_t max_bytes) {
  return {ErrorKind::kInvalidArgument, "a control message" + name_in(message) + " of " + std::to_string(n_bytes) +
                                           " bytes is larger than the " + std::to_string(max_bytes) +
                                           " that are possible: make groups of fewer tensors."};
}

// The size of the frame that starts with these bytes; the header's alone if the length is not complete.
std::size_t frame_bytes(std::span<const std::byte> begin) {
  std::uint32_t length = 0;
  if (begin.size() >= sizeof length) std::memcpy(&length, begin.data(), sizeof length);
  return kFrameHeaderBytes + length;
}

}  // namespace

void append_frame(LaneId lane, const Message& message, std::vector<std::byte>& out, std::size_t max_bytes) {
  const std::size_t start = out.size();
  out.resize(start + kFrameHeaderBytes);
  append_body(lane, message, out);
  const std::size_t n_bytes = out.size() - start - kFrameHeaderBytes;
  if (n_bytes <= max_bytes || std::holds_alternative<AbortMessage>(message)) {
    const auto length = static_cast<std::uint32_t>(n_bytes);
    std::memcpy(out.data() + start, &length, sizeof length);
    return;
  }
  out.resize(start);
  if (const auto parts = cut_in_two(message)) {
    append_frame(lane, parts->first, out, max_bytes);
    append_frame(lane, parts->second, out, max_bytes);
  } else {
    append_frame(lane, too_large(message, n_bytes, max_bytes), out, max_bytes);
  }
}

std::optional<Result<Envelope>> FrameReader::next() {
  if (!begun_.empty()) {
    complete(kFrameHeaderBytes);
    complete(frame_bytes(begun_));
  }
  const std::span<const std::byte> from = begun_.empty() ? unread_ : std::span<const std::byte>(begun_);
  const std::size_t n_bytes = frame_bytes(from);
  if (n_bytes > kFrameHeaderBytes + kMaxFrameBytes) {
    const std::string claimed = std::to_string(n_bytes - kFrameHeaderBytes);
    return Result<Envelope>(Status::internal("a control frame claims " + claimed + " bytes"));
  }
  if (from.size() < n_bytes) {
    if (begun_.empty()) begun_.assign(unread_.begin(), unread_.end());
    unread_ = {};
    return std::nullopt;
  }
  auto envelope = decode_body(from.subspan(kFrameHeaderBytes, n_bytes - kFrameHeaderBytes));
  if (begun_.empty()) unread_ = unread_.subspan(n_bytes);
  begun_.clear();
  return envelope;
}

// Extends begun_ to n_bytes, as far as the received bytes suffice.
void FrameReader::complete(std::size_t n_bytes) {
  const std::size_t n = std::min(n_bytes - std::min(n_bytes, begun_.size()), unread_.size());
  begun_.insert(begun_.end(), unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(n));
  unread_ = unread_.subspan(n);
}

}  // namespace ciranda
