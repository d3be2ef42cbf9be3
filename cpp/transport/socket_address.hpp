// SocketAddress: an IPv4 or IPv6 address with a port, and the functions that create one.
//
// Called by membership/ and socket.hpp; a plain value. resolve() may query the name service and block; the other
// functions do not.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace ciranda {

class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t n_bytes);

  // "10.0.0.7" or "fe80::1%eth0", without brackets or port. Numeric only.
  static Result<SocketAddress> from_ip(const std::string& ip, std::uint16_t port);
  // "10.0.0.7:4000", "[::1]:4000". Numeric only.
  static Result<SocketAddress> parse(std::string_view text);
  // As parse(), but the host may be a name. Returns all its addresses.
  static Result<std::vector<SocketAddress>> resolve(std::string_view text);
  // The addresses of the two ends of a connected socket; empty if it has none.
  static SocketAddress local_of(int fd);
  static SocketAddress peer_of(int fd);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t n_bytes() const { return n_bytes_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);

  bool is_loopback() const;
  // True for addresses that the public internet does not route: loopback, link-local, site-private.
  bool is_private() const;
  // True if both have the same IP address; the ports may differ.
  bool same_ip(const SocketAddress& other) const;
  bool same_prefix(const SocketAddress& other, std::size_t n_bits) const;

  std::string ip() const;
  std::string to_string() const;  // in the format of parse()

 private:
  sockaddr_storage storage_{};
  socklen_t n_bytes_ = 0;
};

// One network interface's address.
struct InterfaceAddress {
  std::string name;
  SocketAddress address;  // port 0
  std::size_t n_prefix_bits = 0;

  // True if `other` is in the same network, so that no router is needed.
  bool is_next_to(const SocketAddress& other) const;
};

// Addresses of the interfaces that are up.
std::vector<InterfaceAddress> interface_addresses();

// The interface with this name or address. If a name has several addresses, prefers one of `family`. The error lists
// the host's interfaces.
Result<InterfaceAddress> find_interface(const std::string& name_or_address, int family);

}  // namespace ciranda
