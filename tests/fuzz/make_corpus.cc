// make_corpus FOLDER: writes what the fuzz targets begin with, made by the codecs themselves: at least one well-formed
// input of every kind of message, in FOLDER/<target>.corpus/. Without them a fuzzer spends its time on guessing magic
// numbers and lengths.
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "agree/frames.hpp"
#include "agree/random_message.hpp"
#include "base/codec.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/handshake.hpp"
#include "membership/store_messages.hpp"
#include "transport/record_channel.hpp"

namespace ciranda {
namespace {

using Bytes = std::vector<std::byte>;

class Corpus {
 public:
  Corpus(const std::filesystem::path& folder, const std::string& target) : folder_(folder / (target + ".corpus")) {
    std::filesystem::create_directories(folder_);
  }

  void add(std::span<const std::byte> bytes) {
    std::ofstream file(folder_ / ("seed-" + std::to_string(n_seeds_++)), std::ios::binary);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // Targets whose first byte is a parameter.
  void add(unsigned char parameter, std::span<const std::byte> bytes) {
    Bytes whole{std::byte{parameter}};
    whole.insert(whole.end(), bytes.begin(), bytes.end());
    add(whole);
  }

 private:
  std::filesystem::path folder_;
  int n_seeds_ = 0;
};

void seed_bootstrap_messages(Corpus corpus) {
  Endpoint endpoint;
  endpoint.pid = 4711;
  endpoint.bell_fd = 5;
  endpoint.tries_shared_memory = true;
  endpoint.slot_bytes = 4096;
  endpoint.host = "node7";
  endpoint.host_id = "a/b/0/1";
  endpoint.machine = "a/b";
  for (const char* address : {"10.0.0.7:4000", "[fd00::1]:4000"}) {
    endpoint.addresses.emplace_back(address);
    corpus.add(encode(endpoint));
    endpoint.costs.emplace();
  }
  corpus.add(encode(ProbeOffer{"/proc/1/fd/3", 8192, {}, "", ""}));
  corpus.add(encode(ProbeOffer{"", 8192, {}, "too small", ""}));
  corpus.add(encode(ProbeOffer{"", 0, {}, "", "rank 2 is lost"}));
  corpus.add(encode(ProbeAnswer{1, true, {}, "", true, ""}));
  corpus.add(encode(ProbeAnswer{2, false, {}, "why", false, ""}));
  corpus.add(encode(ProbeVerdict{{0, 1, 2}, true, ""}));
  corpus.add(encode(ProbeVerdict{{}, false, "rank 2 is lost"}));
  corpus.add(std::string_view("4000-4100"));
  corpus.add(std::string(64, 'a') + "\n");
}

// Both sides of handshakes that go as far as they can: with another secret than the targets', to the refused proof.
void seed_handshake(Corpus corpus) {
  Credentials credentials;
  credentials.job = "job";
  credentials.epoch = 1;
  const std::array purposes{Purpose{Role::kControl, 1, 0, 4}, Purpose{Role::kData, 3, 0, 4}, Purpose{}};
  for (const Purpose& purpose : purposes) {
    ConnectingHandshake connecting(credentials, purpose, {});
    AcceptingHandshake accepting(credentials, {purpose.role == Role::kStore, 0, purpose.size}, {});
    Bytes said = connecting.take_output();
    accepting.receive(said);
    const Bytes challenge = accepting.take_output();
    connecting.receive(challenge);
    const Bytes proof = connecting.take_output();
    said.insert(said.end(), proof.begin(), proof.end());
    corpus.add(127, said);
    corpus.add(0, said);
    corpus.add(127, challenge);
  }
}

// What a channel writes of small and large pieces, and at its end.
void seed_records(Corpus corpus) {
  for (const WireLevel level : {WireLevel::kAuthenticate, WireLevel::kEncrypt, WireLevel::kCheck, WireLevel::kNone}) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) throw std::runtime_error("no sockets");
    const UniqueFd far(ends[1]);
    std::vector<KeyedSocket> sockets;
    sockets.push_back({UniqueFd(ends[0]), {}});
    RecordChannel channel(std::move(sockets), {level, {}}, [] {});
    const Bytes piece(3000, std::byte{9});
    for (const std::size_t n_bytes : {4U, 60U, 2000U}) channel.write_some(std::span(piece).first(n_bytes));
    channel.write_some(std::span(piece).first(8), piece);
    channel.end();
    Bytes said(16 << 10);
    const ssize_t n = recv(far.get(), said.data(), said.size(), 0);
    said.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    corpus.add(127, said);
    corpus.add(20, said);
  }
}

// As the target cuts them.
Bytes with_length(std::span<const std::byte> message) {
  Bytes bytes;
  ByteWriter{bytes}(message);
  return bytes;
}

void seed_store_messages(Corpus corpus) {
  const Blob blob(20, std::byte{9});
  Bytes all;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const auto bytes = with_length(encode_request({"epoch 1", rank, 3, std::chrono::milliseconds(30000), blob}));
    all.insert(all.end(), bytes.begin(), bytes.end());
    corpus.add(bytes);
  }
  corpus.add(all);
  corpus.add(with_length(encode_request({"epoch 1", 1, 3, std::chrono::milliseconds(0), {}, "no free port"})));
  corpus.add(with_length(encode_request({"epoch 1", 1, 4, std::chrono::milliseconds(10), blob})));
  const std::array<Blob, 2> blobs{blob, Blob{}};
  corpus.add(encode_blobs(blobs));
  corpus.add(encode_error(Status::timeout("rank 1 did not come")));
}

RequestMessage request_for(std::string name, Collective collective) {
  RequestMessage request;
  request.name = std::move(name);
  request.signature.collective = collective;
  if (info(collective).has_tensors) request.signature.tensors.push_back({DataType::kFloat32, {4}});
  return request;
}

ExecuteEntry execution_of(const RequestMessage& request, std::vector<std::int32_t> absent = {}) {
  ExecuteItem item;
  item.cache_id = 0;
  item.is_defined_here = true;
  item.name = request.name;
  item.absent = std::move(absent);
  if (!item.absent.empty()) item.signature = request.signature;
  return ExecuteEntry{{item}};
}

// What two ranks really say.
void seed_conversations(Corpus& corpus) {
  const auto add = [&corpus](const std::vector<Envelope>& said) {
    Bytes stream;
    for (const Envelope& each : said) append_frame(each.lane, each.message, stream);
    corpus.add(255, stream);
  };
  const RequestMessage a = request_for("a", Collective::kAllreduce);
  // A name in full, then by its cache id; on another lane.
  add({{0, a}, {0, ReadyMessage{{{0, false}}}}, {0, LogMessage{{execution_of(a)}}}});
  add({{5, a}, {5, WaitingMessage{}}, {5, ReadyMessage{{{0, true}}}}, {0, a}});
  // A rank joins, the other works on, and all have joined.
  add({{0, a}, {0, JoinMessage{}}, {0, LogMessage{{execution_of(a, {1}), JoinedEntry{1}}}}});
  // A set of two ranks is made and removed.
  RequestMessage set = request_for("add_process_set [0, 1]", Collective::kAddProcessSet);
  set.signature.arguments = {0, 1};
  RequestMessage removal = request_for("remove_process_set [1]", Collective::kRemoveProcessSet);
  removal.signature.arguments = {1};
  add({{0, set}, {0, LogMessage{{execution_of(set)}}}, {0, removal}, {0, LogMessage{{execution_of(removal)}}}});
  // Both have weights; they differ; one calls twice; one leaves.
  RequestMessage weighted = a;
  weighted.signature.op = ReduceOp::kAverage;
  weighted.signature.is_weighted = true;
  add({{0, weighted}, {0, LogMessage{{FailEntry{"a", ErrorKind::kMismatch, "shapes differ", {{0, 1}}}}}}});
  // A plan, reported by rank and through relays, and carried out.
  const LogEntry plan = PlanEntry{1, {{0}}};
  add({{0, a},
       {0, LogMessage{{execution_of(a), plan}}},
       {0, GroupsMessage{1, {}}},
       {0, GroupsMessage{1, {0}}},
       {0, RelayedMessage{{{{}, GroupsMessage{1, {0}}}, {{1}, ReadyMessage{{{0, true}}}}}, true}},
       {0, LogMessage{{ExecuteGroupsEntry{1, {0}, Check::kNone}}}}});
  add({{0, a},
       {0, DuplicateMessage{"a"}},
       {0, ByeMessage{{{0, 1}}}},
       {0, LogMessage{{EndEntry{}}}},
       {0, DeparturesMessage{{{2, {{0, 1}}}}}},
       {0, RoutedMessage{0, 3, RoutedMessage::Kind::kPing}},
       {0, ByeAckMessage{}},
       {0, GoneMessage{}}});
}

void seed_control_frames(Corpus corpus) {
  std::mt19937_64 random(1);
  for (std::size_t type = 0; type < testing::kNumMessageTypes; ++type) {
    Bytes stream;
    for (int i = 0; i < 3; ++i) {
      append_frame(static_cast<LaneId>(i), testing::random_message(type, random), stream);
    }
    corpus.add(static_cast<unsigned char>(type * 7), stream);
  }
  seed_conversations(corpus);
}

}  // namespace
}  // namespace ciranda

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  try {
    ciranda::seed_bootstrap_messages({argv[1], "bootstrap_messages_fuzz"});
    ciranda::seed_control_frames({argv[1], "control_frame_fuzz"});
    ciranda::seed_handshake({argv[1], "handshake_fuzz"});
    ciranda::seed_records({argv[1], "record_fuzz"});
    ciranda::seed_store_messages({argv[1], "store_message_fuzz"});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_corpus: %s\n", error.what());
    return 1;
  }
  return 0;
}
