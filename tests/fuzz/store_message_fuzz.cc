// What an authenticated but broken rank may tell the store, and the store a rank: any bytes, cut into messages at each
// length. What decodes as a request goes on into the store's decisions, which must reply to nobody twice for one
// request. Nothing of it opens as a sealed message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "membership/sealed_messages.hpp"
#include "membership/store_exchanges.hpp"
#include "membership/store_messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const auto bytes = std::as_bytes(std::span(data, n_bytes));
  (void)ciranda::decode_reply(bytes);
  ciranda::SealedMessages sealed(ciranda::ConnectionKeys{});
  sealed.receive(bytes);
  if (auto message = sealed.next(ciranda::kMostRequestBytes); message.ok() && message.value()) std::abort();
  ciranda::StoreExchanges exchanges(3);
  ciranda::StoreExchanges::TimePoint now{};
  ciranda::ConnectionId connection = 0;
  std::size_t n_replies = 0;
  for (auto rest = bytes; rest.size() > sizeof(std::uint32_t);) {
    std::uint32_t length = 0;
    std::memcpy(&length, rest.data(), sizeof(length));
    rest = rest.subspan(sizeof(length));
    const auto message = rest.first(std::min<std::size_t>(length, rest.size()));
    rest = rest.subspan(message.size());
    auto request = ciranda::decode_request(message);
    if (!request.ok()) {
      break;
    }
    now += std::chrono::milliseconds(10);
    n_replies += exchanges.exchange(++connection, "somewhere", std::move(request).value(), now).size();
    n_replies += exchanges.expire(now).size();
    if (connection % 5 == 0) {
      n_replies += exchanges.on_disconnect(connection - 1).size();
    }
  }
  n_replies += exchanges.expire(ciranda::StoreExchanges::TimePoint::max()).size();
  if (n_replies > connection || exchanges.next_deadline()) {
    std::abort();
  }
  return 0;
}
