// What an authenticated but broken rank may send to the store, and the store to a rank: any bytes, cut into frames.
// What decodes as a request goes on into the store's decisions, which must reply to nobody twice for one request.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "membership/store_exchanges.hpp"
#include "membership/store_messages.hpp"
#include "membership/wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  const auto bytes = std::as_bytes(std::span(data, n_bytes));
  (void)ciranda::decode_reply(bytes);
  ciranda::FrameBuffer frames(ciranda::kMostRequestBytes);
  frames.append(bytes);
  ciranda::StoreExchanges exchanges(3);
  ciranda::StoreExchanges::TimePoint now{};
  ciranda::ConnectionId connection = 0;
  std::size_t n_replies = 0;
  for (;;) {
    auto frame = frames.next();
    if (!frame.ok() || !frame.value()) {
      break;
    }
    auto request = ciranda::decode_request(*frame.value());
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
