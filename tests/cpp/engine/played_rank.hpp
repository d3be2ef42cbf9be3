// PlayedRank: a rank that the test plays: it sends what the test says, whatever a rank would say, and reads what comes.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agree/frames.hpp"
#include "transport/mesh.hpp"

namespace ciranda::testing {

class PlayedRank {
 public:
  explicit PlayedRank(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  void say(int to, LaneId lane, const Message& message) {
    std::vector<std::byte> bytes;
    append_frame(lane, message, bytes);
    say(to, bytes);
  }
  void say(int to, std::span<const std::byte> frames) {
    const Deadline deadline;
    while (!frames.empty() && !deadline.is_over()) {
      frames = frames.subspan(mesh_->control(to).write_some(frames));
      mesh_->notify();
      if (!frames.empty()) std::this_thread::yield();
    }
    EXPECT_TRUE(frames.empty()) << "rank " << to << " reads nothing";
  }

  void connect(int to) { mesh_->connect(to); }
  bool is_connected(int to) {
    mesh_->poll_events();
    return mesh_->is_connected(to);
  }

  // The next message of this kind from that rank; what comes before it is passed over. None if the rank gives up first.
  template <typename Kind>
  std::optional<Kind> hear(
      int from, const std::function<void(const Message&)>& pass_over = [](const Message&) {}) {
    const Deadline deadline;
    while (!deadline.is_over()) {
      while (auto envelope = incoming_.next()) {
        if (!envelope->ok()) return std::nullopt;
        Message& message = envelope->value().message;
        if (auto* heard = std::get_if<Kind>(&message)) return std::move(*heard);
        if (const auto* abort = std::get_if<AbortMessage>(&message)) {
          ADD_FAILURE() << "rank " << from << " gave up: " << abort->text;
          return std::nullopt;
        }
        pass_over(message);
      }
      const std::size_t n = mesh_->control(from).read_some(read_);
      incoming_.append(std::span(read_).first(n));
      mesh_->notify();
      if (n == 0) std::this_thread::yield();
    }
    return std::nullopt;
  }

  // Whether the rank has said nothing of this kind before it answers a question that comes now.
  template <typename Kind>
  bool is_silent_about(int from) {
    bool is_said = false;
    for (int i = 0; i < 2; ++i) {  // with the first answer, the rank may not have done all about what came before
      say(from, 0, PingMessage{});
      const auto note = [&](const Message& message) { is_said |= std::holds_alternative<Kind>(message); };
      if (!hear<PongMessage>(from, note)) return false;
    }
    return !is_said;
  }

 private:
  class Deadline {
   public:
    bool is_over() const { return std::chrono::steady_clock::now() > at_; }

   private:
    std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  };

  std::unique_ptr<Mesh> mesh_;
  std::array<std::byte, 4096> read_{};
  FrameReader incoming_;
};

}  // namespace ciranda::testing
