// Any bytes from an authenticated peer: as a stream of control frames cut somewhere, and what a coordinator and a
// participant then make of the messages. Nothing may crash; what decodes must encode to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "agree/coordinator.hpp"
#include "agree/frames.hpp"
#include "agree/participant.hpp"
#include "agree/persistent_ops.hpp"
#include "agree/relay.hpp"
#include "base/relay_tree.hpp"

namespace {

using ciranda::Envelope;
using ciranda::Message;

constexpr ciranda::TimePoint kNow{};

void require(bool condition) {
  if (!condition) std::abort();
}

void expect_round_trip(const Envelope& envelope) {
  std::vector<std::byte> frame;
  append_frame(envelope.lane, envelope.message, frame);
  const auto body = std::span<const std::byte>(frame).subspan(ciranda::kFrameHeaderBytes);
  const auto again = ciranda::decode_body(body);
  require(again.ok());
  std::vector<std::byte> frame_again;
  append_frame(again.value().lane, again.value().message, frame_again);
  require(frame == frame_again);
}

// Two ranks, of which the peer is rank 1; each side of the agreement stops at its first complaint, as a world does.
class World {
 public:
  World() {
    ciranda::CoordinatorOptions options;
    options.size = 2;
    options.cache_capacity = 4;
    options.reports_groups = true;
    coordinator_ = std::make_unique<ciranda::Coordinator>(options);
    ciranda::Request request;
    request.name = "a";
    request.signature.tensors.push_back({ciranda::DataType::kFloat32, {4}});
    participant_.submit(ops_.find_or_make(0, request.name), request, 0);
    participant_.submit(ops_.find_or_make(0, request.name), request, 1);
    participant_.calls().join(2);
  }

  void hear(const Message& message) {
    if (!is_broken_) report(message);
    if (const auto* log = std::get_if<ciranda::LogMessage>(&message)) apply(*log);
    relay(message);
  }

 private:
  void report(const Message& message) {
    const auto say = [&](int rank) {
      is_broken_ = is_broken_ || !coordinator_->on_message(rank, Message(message), kNow).ok();
    };
    if (const auto* relayed = std::get_if<ciranda::RelayedMessage>(&message)) {
      is_broken_ = !coordinator_->on_relayed(*relayed, kNow).ok();
    } else {
      const bool is_of_both = std::holds_alternative<ciranda::RequestMessage>(message) ||
                              std::holds_alternative<ciranda::GroupsMessage>(message);
      if (is_of_both) say(0);
      say(1);
    }
    coordinator_->take_entries(true);
  }

  void apply(const ciranda::LogMessage& log) {
    for (const ciranda::LogEntry& entry : log.entries) {
      if (!participant_.apply(entry).ok()) return;
    }
  }

  // The peer is a rank of this host, and the relay of another.
  void relay(const Message& message) {
    if (const auto* log = std::get_if<ciranda::LogMessage>(&message)) relay_.pass_down(*log);
    const int from = std::holds_alternative<ciranda::RelayedMessage>(message) ? 2 : 1;
    if (!relay_.on_message(from, message).ok()) return;
    relay_.let_go();
    relay_.take();
  }

  std::unique_ptr<ciranda::Coordinator> coordinator_;
  ciranda::PersistentOps ops_;
  ciranda::Participant participant_{1, 0, ops_};
  ciranda::Relay relay_{ciranda::RelayTree({"a", "a", "b"}), 0};
  bool is_broken_ = false;
};

}  // namespace

// The first byte says where the stream is cut; the rest is the stream.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto stream = std::as_bytes(std::span(data, size)).subspan(1);
  const std::size_t cut = std::min<std::size_t>(stream.size(), data[0]);
  ciranda::FrameReader reader;
  World world;
  for (const auto part : {stream.first(cut), stream.subspan(cut)}) {
    reader.append(part);
    for (auto message = reader.next(); message; message = reader.next()) {
      if (!message->ok()) return 0;
      expect_round_trip(message->value());
      world.hear(message->value().message);
    }
  }
  // The same bytes as one frame without a header: fuzzing need not guess lengths.
  if (const auto message = ciranda::decode_body(stream); message.ok()) {
    expect_round_trip(message.value());
    world.hear(message.value().message);
  }
  return 0;
}
