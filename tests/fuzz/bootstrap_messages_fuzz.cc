// The messages of ranks to each other while a world forms. What decodes must encode to the same bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "membership/bootstrap_messages.hpp"
#include "membership/secret.hpp"
#include "transport/socket.hpp"
#include "transport/socket_address.hpp"

namespace {

void expect_same(std::span<const std::byte> bytes, std::span<const std::byte> again) {
  if (!std::equal(bytes.begin(), bytes.end(), again.begin(), again.end())) {
    std::abort();
  }
}

template <typename Message>
void try_frame(std::span<const std::byte> body, ciranda::Result<Message> (*decode)(std::span<const std::byte>)) {
  const auto message = decode(body);
  if (message.ok()) {
    const auto frame = encode_frame(message.value());
    const auto again = decode(std::span<const std::byte>(frame).subspan(4));
    if (!again.ok()) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const auto bytes = std::as_bytes(std::span(data, n_bytes));
  const auto endpoint = ciranda::decode_endpoint(bytes);
  if (endpoint.ok()) {
    expect_same(bytes, ciranda::encode(endpoint.value()));
    for (const std::string& address : endpoint.value().addresses) (void)ciranda::SocketAddress::parse(address);
  }
  const auto costs = ciranda::decode_costs(bytes);
  if (costs.ok()) expect_same(bytes, ciranda::encode(costs.value()));
  try_frame(bytes, &ciranda::decode_offer);
  try_frame(bytes, &ciranda::decode_answer);
  try_frame(bytes, &ciranda::decode_verdict);
  const std::string text(reinterpret_cast<const char*>(data), n_bytes);
  (void)ciranda::parse_secret(text);
  (void)ciranda::parse_port_range(text);
  return 0;
}
