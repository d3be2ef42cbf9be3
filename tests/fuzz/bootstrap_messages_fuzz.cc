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
void try_message(std::span<const std::byte> bytes, ciranda::Result<Message> (*decode)(std::span<const std::byte>)) {
  const auto message = decode(bytes);
  if (message.ok()) {
    const auto again = decode(encode(message.value()));
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
  try_message(bytes, &ciranda::decode_offer);
  try_message(bytes, &ciranda::decode_answer);
  try_message(bytes, &ciranda::decode_verdict);
  const std::string text(reinterpret_cast<const char*>(data), n_bytes);
  (void)ciranda::parse_secret(text);
  (void)ciranda::parse_port_range(text);
  return 0;
}
