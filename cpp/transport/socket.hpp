// TCP sockets: listening on a port of a range, connecting without blocking, and options.
//
// All sockets are non-blocking and close-on-exec. In private networks, sockets use cubic or reno where the system's
// congestion control is bbr, because bbr's pacing keeps links with microseconds of delay far below their bandwidth. The
// choice must be made before connecting: Linux keeps pacing a connection that bbr has once paced.
// Called by membership/, RecordChannel, SocketMesh; any thread. Failure: every error names the address.
#pragma once

#include <chrono>
#include <optional>

#include "base/port_range.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "transport/socket_address.hpp"
#include "transport/traffic.hpp"

namespace ciranda {

// Listens on the first free port of the range at this address, whose own port is ignored. Accepted connections inherit
// the socket's congestion control.
Result<UniqueFd> listen_on(const SocketAddress& address, PortRange ports);

// Begins to connect. The socket becomes writable when connecting has ended; finish_connecting() then returns the
// outcome. RanksLost if no process listens there, Internal for other failures. `from`: this host's address to use, its
// port ignored; if empty, the system chooses.
Result<UniqueFd> start_connecting(const SocketAddress& to, const SocketAddress& from = {});
Status finish_connecting(int fd, const SocketAddress& to);

inline constexpr std::chrono::milliseconds kLinkTimeout{3000};

// Sets no delay for small writes; keep-alive, which detects a vanished host while nothing is sent, within the link
// timeout or eight seconds; and frequent retransmissions. If the system refuses an option, the socket stays usable.
void tune_connection(int fd, std::chrono::milliseconds link_timeout = kLinkTimeout);

// The shortest round-trip time that the kernel has measured: that of the network alone, without delays of busy ends.
// None if the kernel does not report it.
std::optional<std::chrono::microseconds> least_round_trip(int fd);

// What has gone over the connection; nothing, if the kernel does not report it.
Traffic traffic_of(int fd);

// Enlarges the send buffer (bytes waiting or in flight) to twice n_bytes. The kernel goes on choosing the size if it
// grants less than that, or if the buffer is already that large.
void make_room_to_send(int fd, int n_bytes);

// From now on at most n_bytes wait unsent in the kernel, besides those in flight. So the rate at which the socket takes
// bytes is the speed of the connection.
void limit_unsent(int fd, int n_bytes);

}  // namespace ciranda
