// The messages of the store and of the bootstrap: what is written is read back, and nothing else is.
#include <gtest/gtest.h>

#include "base/codec.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/store_messages.hpp"
#include "text_matchers.hpp"

namespace ciranda {
namespace {

// No prefix of a message is a message, and neither is one with a byte more.
template <typename Decode>
void expect_exact(std::span<const std::byte> body, Decode decode) {
  ASSERT_TRUE(decode(body).ok());
  for (std::size_t n = 0; n < body.size(); ++n) {
    EXPECT_FALSE(decode(body.first(n)).ok()) << "a prefix of " << n << " bytes";
  }
  std::vector<std::byte> longer(body.begin(), body.end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer).ok()) << "a byte too many";
}

TEST(StoreMessages, RequestIsReadBackExactly) {
  const ExchangeRequest request{"epoch 1", 2, 4, std::chrono::milliseconds(1500), Blob(100, std::byte{5}), "sorry"};
  const auto message = encode_request(request);
  const auto decoded = decode_request(message);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().key, request.key);
  EXPECT_EQ(decoded.value().rank, 2U);
  EXPECT_EQ(decoded.value().size, 4U);
  EXPECT_EQ(decoded.value().timeout, request.timeout);
  EXPECT_EQ(decoded.value().blob, request.blob);
  EXPECT_EQ(decoded.value().why_absent, "sorry");
  expect_exact(message, decode_request);
}

TEST(StoreMessages, ImpossibleRequestsAreRefused) {
  const auto decodes = [](const ExchangeRequest& request) { return decode_request(encode_request(request)).ok(); };
  EXPECT_TRUE(decodes({"k", 0, 1, {}, {}}));
  EXPECT_FALSE(decodes({"", 0, 1, {}, {}})) << "no key";
  EXPECT_FALSE(decodes({"k", 1, 1, {}, {}})) << "rank beyond the size";
  EXPECT_FALSE(decodes({"k", 0, 0, {}, {}})) << "size 0";
  EXPECT_FALSE(decodes({std::string(257, 'k'), 0, 1, {}, {}})) << "long key";
  EXPECT_TRUE(decodes({"k", 0, 1, {}, Blob(kMostBlobBytes)}));
  EXPECT_FALSE(decodes({"k", 0, 1, {}, Blob(kMostBlobBytes + 1)})) << "large blob";
}

TEST(StoreMessages, RepliesAreReadBackExactly) {
  const std::vector<Blob> blobs = {Blob(3, std::byte{1}), Blob(), Blob(70, std::byte{2})};
  const auto message = encode_blobs(blobs);
  EXPECT_EQ(decode_reply(message).value(), blobs);
  expect_exact(message, decode_reply);
  const auto error = decode_reply(encode_error(Status::timeout("rank 3 did not come")));
  EXPECT_EQ(error.status().kind(), ErrorKind::kTimeout);
  EXPECT_EQ(error.status().message(), "rank 3 did not come");
}

TEST(StoreMessages, ACountThatIsNotThereCostsNoMemory) {
  std::vector<std::byte> reply;
  ByteWriter{reply}(std::uint8_t{2}, std::uint32_t{0xffffffff});
  EXPECT_FALSE(decode_reply(reply).ok());
}

TEST(BootstrapMessages, AreReadBackExactly) {
  const CommonSettings settings{262144, 3, 2, false, "none", "two-shot", "bf16", "peer", "ciranda", -1, 4096, false};
  Endpoint endpoint{settings, 12, 5, true, 8, true, HostCosts{}, "node7", "id", "machine", {}};
  endpoint.addresses = {"10.0.0.7:4000", "[fd00::7]:4001", "10.1.0.7:4000"};
  const auto blob = encode(endpoint);
  const auto decoded = decode_endpoint(blob);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().pid, 12U);
  EXPECT_EQ(decoded.value().bell_fd, 5U);
  EXPECT_TRUE(decoded.value().tries_shared_memory);
  EXPECT_EQ(decoded.value().slot_bytes, 262144U);
  EXPECT_EQ(decoded.value().n_lanes, 3U);
  EXPECT_EQ(decoded.value().n_sockets, 2U);
  EXPECT_FALSE(decoded.value().uses_relays);
  EXPECT_EQ(decoded.value().wire, "none");
  EXPECT_EQ(decoded.value().one_shot_bytes, -1);
  EXPECT_EQ(decoded.value().segment_bytes, 4096);
  EXPECT_FALSE(decoded.value().autotune);
  EXPECT_EQ(decoded.value().n_cores, 8U);
  EXPECT_TRUE(decoded.value().has_fast_aes);
  EXPECT_EQ(decoded.value().costs, HostCosts{});
  EXPECT_EQ(decoded.value().algorithm, "two-shot");
  EXPECT_EQ(decoded.value().wire_dtype, "bf16");
  EXPECT_EQ(decoded.value().gpu_way, "peer");
  EXPECT_EQ(decoded.value().gpu_reduce, "ciranda");
  EXPECT_EQ(decoded.value().host + decoded.value().host_id + decoded.value().machine, "node7idmachine");
  EXPECT_EQ(decoded.value().addresses, endpoint.addresses);
  expect_exact(blob, decode_endpoint);

  ProbeOffer offer{"/proc/1/fd/2", 4096, {}, "why", "rank 2 ended"};
  offer.nonce.fill(std::byte{9});
  EXPECT_EQ(decode_offer(encode(offer)).value().path, offer.path);
  EXPECT_EQ(decode_offer(encode(offer)).value().nonce, offer.nonce);
  expect_exact(encode(offer), decode_offer);
  const ProbeAnswer answer{3, true, offer.nonce, "", true, "rank 2 ended"};
  EXPECT_TRUE(decode_answer(encode(answer)).value().ok);
  expect_exact(encode(answer), decode_answer);
  const ProbeVerdict verdict{{1, 5, 9}, true, "rank 2 ended"};
  EXPECT_EQ(decode_verdict(encode(verdict)).value().ranks, verdict.ranks);
  expect_exact(encode(verdict), decode_verdict);
}

TEST(BootstrapMessages, AYesIsOneAndANoIsZero) {
  const CommonSettings settings{262144, 3, 2, true, "", "", "", "", "", -1, 0, true};
  for (const std::size_t place : {9U, 14U, 39U, 76U, 77U}) {  // of an endpoint's five
    auto blob = encode(Endpoint{settings, 12, 5, true, 8, true, HostCosts{}, "", "", "", {"10.0.0.7:4000"}});
    ASSERT_EQ(blob[place], std::byte{1});
    blob[place] = std::byte{2};
    EXPECT_FALSE(decode_endpoint(blob).ok());
  }
}

TEST(BootstrapMessages, CostsOutOfBoundsAreRefused) {
  for (const HostCost& each : kHostCosts) {
    Endpoint endpoint;
    endpoint.addresses = {"10.0.0.7:4000"};
    endpoint.costs.emplace();
    (*endpoint.costs).*each.value = each.highest;
    EXPECT_TRUE(decode_endpoint(encode(endpoint)).ok()) << each.name;
    for (const std::uint64_t wrong : {each.lowest - 1, each.highest + 1}) {
      (*endpoint.costs).*each.value = wrong;
      EXPECT_FALSE(decode_endpoint(encode(endpoint)).ok()) << each.name << " " << wrong;
    }
  }
}

TEST(BootstrapMessages, CostsAreReadBackExactlyIfThereAreAny) {
  HostCosts costs;
  costs.shared_round_ns = 1'440;
  for (const std::optional<HostCosts>& each : {std::optional(costs), std::optional<HostCosts>()}) {
    const auto blob = encode(each);
    EXPECT_EQ(decode_costs(blob).value(), each);
    expect_exact(blob, decode_costs);
  }
  costs.copy_fs = kMostFs + 1;
  EXPECT_FALSE(decode_costs(encode(std::optional(costs))).ok());
}

TEST(BootstrapMessages, NoAddressesAndTooManyAreRefused) {
  for (const std::size_t n_addresses : {std::size_t{0}, kMostAddresses, kMostAddresses + 1}) {
    Endpoint endpoint;
    endpoint.addresses.assign(n_addresses, "10.0.0.7:4000");
    EXPECT_EQ(decode_endpoint(encode(endpoint)).ok(), n_addresses == kMostAddresses);
  }
}

TEST(BootstrapMessages, APathWithAZeroByteIsRefused) {
  const ProbeOffer offer{std::string("/etc/passwd\0x", 13), 4096, {}, "", ""};
  EXPECT_FALSE(decode_offer(encode(offer)).ok());
}

TEST(BootstrapMessages, LongTextsAreCutButNoPathIs) {
  ProbeOffer offer{std::string(kMostTextBytes, 'p'), 4096, {}, std::string(kMostTextBytes + 1, 'r'), ""};
  const auto decoded = decode_offer(encode(offer));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().path, offer.path);
  EXPECT_EQ(decoded.value().reason.size(), kMostTextBytes);
  offer.path += 'p';
  EXPECT_FALSE(decode_offer(encode(offer)).ok());
}

}  // namespace
}  // namespace ciranda
