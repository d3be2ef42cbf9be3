// What Ciranda asks of TCP sockets: listening on a port of a range, connecting without blocking, and their options.
//
// All sockets are non-blocking and close-on-exec. Those of private networks, where bbr is the system's choice of
// congestion control, get cubic or reno instead, because bbr's pacing holds links of a microsecond far below their
// bandwidth. It must be chosen before they are connected: what bbr has paced once stays paced.
// Failure: every error names the address.
#pragma once

#include <chrono>
#include <optional>

#include "base/port_range.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

// Listens on the first free port of the range at this address (whose own port is ignored). Connections that it accepts
// have its congestion control.
Result<UniqueFd> listen_on(const SocketAddress& address, PortRange ports);

// A connected socket, or one on its way: it becomes writable when connecting has ended, as finish_connecting() tells.
// RanksLost when nobody listens there, Internal for other failures. `from`: this host's address to use, whatever its
// port; empty for the system to choose.
Result<UniqueFd> start_connecting(const SocketAddress& to, const SocketAddress& from = {});
Status finish_connecting(int fd, const SocketAddress& to);

inline constexpr std::chrono::milliseconds kLinkTimeout{30000};

// No delay for small writes; keep-alive, so that a vanished host is noticed while nothing is sent. A socket stays
// usable when the system refuses one of them.
void tune_connection(int fd, std::chrono::milliseconds link_timeout = kLinkTimeout);

// The least time that an answer has taken, as the system has seen: of the ways alone, whatever kept the ends busy. None
// where it has not said so.
std::optional<std::chrono::microseconds> least_round_trip(int fd);

// Room in the system for twice so many bytes that are sent, or under way, where it grants as much: else it goes on
// choosing by itself, as where less is asked for than it begins with.
void make_room_to_send(int fd, int n_bytes);

// From now on no more bytes than this wait in the system for their turn, besides those that are on their way. So what
// is written tells how fast the connection is.
void limit_unsent(int fd, int n_bytes);

}  // namespace ciranda
