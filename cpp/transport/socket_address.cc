#include "transport/socket_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/parse_number.hpp"

namespace ciranda {
namespace {

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};

std::optional<HostAndPort> split(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']' && host.size() > 2) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  if (!port) return std::nullopt;
  return HostAndPort{std::string(host), *port};
}

Result<std::vector<SocketAddress>> look_up(const HostAndPort& wanted, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
  if (code != 0) {
    return Status::invalid_argument("'" + wanted.host + "' is not a host or address: " + gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET || each->ai_family == AF_INET6) {
      addresses.emplace_back(each->ai_addr, each->ai_addrlen);
    }
  }
  if (addresses.empty()) {
    return Status::invalid_argument("'" + wanted.host + "' has neither an IPv4 nor an IPv6 address");
  }
  return addresses;
}

Status malformed(std::string_view text) {
  return Status::invalid_argument("'" + std::string(text) + "' is not of the form address:port or [IPv6 address]:port");
}

using NameFunction = int (*)(int, sockaddr*, socklen_t*);

SocketAddress ask(int fd, NameFunction function) {
  sockaddr_storage storage{};
  socklen_t n_bytes = sizeof(storage);
  if (function(fd, reinterpret_cast<sockaddr*>(&storage), &n_bytes) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), n_bytes};
}

// The address in network byte order; IPv4 inside IPv6 counts as IPv4.
std::span<const std::uint8_t> ip_bytes(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    return {reinterpret_cast<const std::uint8_t*>(&in.sin_addr), 4};
  }
  if (storage.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) return {in6.sin6_addr.s6_addr + 12, 4};
    return {in6.sin6_addr.s6_addr, 16};
  }
  return {};
}

std::size_t count_bits(const sockaddr* mask, socklen_t n_bytes) {
  if (mask == nullptr) return 0;
  sockaddr_storage storage{};
  std::memcpy(&storage, mask, n_bytes);
  std::size_t n_bits = 0;
  for (const std::uint8_t byte : ip_bytes(storage)) n_bits += static_cast<std::size_t>(std::popcount(byte));
  return n_bits;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t n_bytes)
    : n_bytes_(std::min<socklen_t>(n_bytes, sizeof(storage_))) {
  std::memcpy(&storage_, address, n_bytes_);
}

Result<SocketAddress> SocketAddress::from_ip(const std::string& ip, std::uint16_t port) {
  auto found = look_up({ip, port}, AI_NUMERICHOST);
  if (!found.ok()) return found.status();
  return found.value().front();
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return malformed(text);
  return from_ip(parts->host, parts->port);
}

Result<std::vector<SocketAddress>> SocketAddress::resolve(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return malformed(text);
  return look_up(*parts, 0);
}

SocketAddress SocketAddress::local_of(int fd) { return ask(fd, &getsockname); }
SocketAddress SocketAddress::peer_of(int fd) { return ask(fd, &getpeername); }

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
  }
}

bool SocketAddress::is_loopback() const {
  const auto bytes = ip_bytes(storage_);
  if (bytes.size() == 4) return bytes[0] == 127;
  return bytes.size() == 16 && bytes[15] == 1 &&
         std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t byte) { return byte == 0; });
}

bool SocketAddress::is_private() const {
  const auto bytes = ip_bytes(storage_);
  if (bytes.size() == 4) {
    return is_loopback() || bytes[0] == 10 || (bytes[0] == 172 && (bytes[1] & 0xf0) == 16) ||
           (bytes[0] == 192 && bytes[1] == 168) || (bytes[0] == 169 && bytes[1] == 254);
  }
  return is_loopback() ||
         (bytes.size() == 16 && ((bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) || (bytes[0] & 0xfe) == 0xfc));
}

bool SocketAddress::same_ip(const SocketAddress& other) const {
  const auto mine = ip_bytes(storage_);
  const auto theirs = ip_bytes(other.storage_);
  return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end());
}

bool SocketAddress::same_prefix(const SocketAddress& other, std::size_t n_bits) const {
  const auto mine = ip_bytes(storage_);
  const auto theirs = ip_bytes(other.storage_);
  if (mine.size() != theirs.size()) return false;
  for (std::size_t bit = 0; bit < std::min(n_bits, 8 * mine.size()); ++bit) {
    if (((mine[bit / 8] ^ theirs[bit / 8]) & (0x80U >> bit % 8)) != 0) return false;
  }
  return true;
}

std::string SocketAddress::ip() const {
  std::array<char, NI_MAXHOST> text{};
  if (n_bytes_ == 0 || getnameinfo(raw(), n_bytes_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "?";
  }
  return text.data();
}

std::string SocketAddress::to_string() const {
  const std::string host = ip();
  const std::string end = ":" + std::to_string(port());
  return family() == AF_INET6 ? "[" + host + "]" + end : host + end;
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) {
      const socklen_t n_bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      result.push_back(
          {each->ifa_name, SocketAddress(each->ifa_addr, n_bytes), count_bits(each->ifa_netmask, n_bytes)});
    }
  }
  return result;
}

bool InterfaceAddress::is_next_to(const SocketAddress& other) const {
  return address.same_prefix(other, n_prefix_bits);
}

Result<InterfaceAddress> find_interface(const std::string& name_or_address, int family) {
  const auto parsed = SocketAddress::from_ip(name_or_address, 0);
  std::string there_are;
  std::optional<InterfaceAddress> other_family;
  for (const InterfaceAddress& each : interface_addresses()) {
    there_are += (there_are.empty() ? "" : ", ") + each.name + " (" + each.address.ip() + ")";
    if (parsed.ok() ? each.address.same_ip(parsed.value()) : each.name == name_or_address) {
      if (parsed.ok() || each.address.family() == family) return each;
      if (!other_family) other_family = each;
    }
  }
  if (other_family) return *other_family;
  return Status::invalid_argument("this host has no network interface '" + name_or_address +
                                  "' that is up; there are " + (there_are.empty() ? std::string("none") : there_are));
}

}  // namespace ciranda
