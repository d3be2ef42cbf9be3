// SocketAddress: an IPv4 or IPv6 address with a port, and the ways to get one.
//
// Plain value. resolve() may ask the name service and block; the others do not.
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
  // As parse(), but the host may be a name; all its addresses.
  static Result<std::vector<SocketAddress>> resolve(std::string_view text);
  // The two ends of a connected socket; an empty address when it has none.
  static SocketAddress local_of(int fd);
  static SocketAddress peer_of(int fd);

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t n_bytes() const { return n_bytes_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);

  bool is_loopback() const;
  // Not routed on the public internet: loopback, link-local, site-private.
  bool is_private() const;
  // The same host, whatever the port.
  bool same_ip(const SocketAddress& other) const;
  bool same_prefix(const SocketAddress& other, std::size_t n_bits) const;

  std::string ip() const;
  std::string to_string() const;  // as parse() reads it

 private:
  sockaddr_storage storage_{};
  socklen_t n_bytes_ = 0;
};

// One network interface's address.
struct InterfaceAddress {
  std::string name;
  SocketAddress address;  // port 0
  std::size_t n_prefix_bits = 0;

  // Whether it is in the same network: reached without a router.
  bool is_next_to(const SocketAddress& other) const;
};

// Addresses of the interfaces that are up.
std::vector<InterfaceAddress> interface_addresses();

// The interface that has this name or this address. Where a name has several addresses, an IPv4 address is preferred
// unless `family` is AF_INET6. Failure lists what there is.
Result<InterfaceAddress> find_interface(const std::string& name_or_address, int family);

}  // namespace ciranda
