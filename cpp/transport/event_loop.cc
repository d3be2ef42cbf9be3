#include "transport/event_loop.hpp"

#include <array>

namespace ciranda {

Result<EventLoop> EventLoop::create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::from_errno("cannot make an epoll descriptor");
  return EventLoop(std::move(epoll));
}

Status EventLoop::add(int fd, std::uint32_t events, std::uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Status::from_errno("cannot watch a descriptor");
  return {};
}

void EventLoop::change(int fd, std::uint32_t events, std::uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) { (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const EventLoop::Event> EventLoop::wait(int timeout_ms) {
  std::array<epoll_event, 64> ready{};
  const int n_ready = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), timeout_ms);
  const std::size_t n = n_ready > 0 ? static_cast<std::size_t>(n_ready) : 0;
  for (std::size_t i = 0; i < n; ++i) events_[i] = {ready[i].data.u64, ready[i].events};
  return {events_.data(), n};
}

}  // namespace ciranda
