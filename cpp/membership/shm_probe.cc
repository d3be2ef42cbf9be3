#include "membership/shm_probe.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/fill_random.hpp"
#include "membership/blocking_io.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/sealed_messages.hpp"

namespace ciranda {
namespace {

constexpr const char* kRemedy =
    ". Enlarge it (mount -o remount,size=1G /dev/shm; docker run --shm-size=1g), or set CIRANDA_SHARED_MEMORY=0 to "
    "silence this";

bool holds(std::span<const std::byte> place, const Nonce& nonce) {
  return std::equal(place.begin(), place.end(), nonce.begin(), nonce.end());
}

void put(std::span<std::byte> place, const Nonce& nonce) { std::copy(nonce.begin(), nonce.end(), place.begin()); }

class Probe {
 public:
  explicit Probe(const ShmProbeOptions& options)
      : options_(options), layout_(static_cast<int>(options.group.size()), options.slot_bytes) {
    for (const int rank : options.rank == leader() ? followers() : std::vector<int>{leader()}) {
      messages_.emplace(rank, SealedMessages(options.control(rank).keys));
    }
  }

  Result<ShmProbeResult> lead();
  Result<ShmProbeResult> follow();

 private:
  Status send(int rank, std::span<const std::byte> message) {
    return named(rank, send_all(options_.control(rank).fd.get(), messages_.at(rank).seal(message), options_.limit));
  }
  Status send_to_all(std::span<const std::byte> message);
  Status give_up(const Status& why);
  template <typename Message>
  Result<Message> receive(int rank, Result<Message> (*decode)(std::span<const std::byte>));
  Status named(int rank, const Status& status) const {
    return status.ok() ? status : Status(status.kind(), options_.name(rank) + " " + status.message());
  }
  ProbeAnswer try_offer(const ProbeOffer& offer, std::optional<ShmSegment>& segment) const;
  void warn(const std::vector<int>& ranks, const std::string& reason) const;
  std::vector<int> followers() const { return {options_.group.begin() + 1, options_.group.end()}; }
  int leader() const { return options_.group.front(); }
  int index_of(int rank) const {
    return static_cast<int>(std::find(options_.group.begin(), options_.group.end(), rank) - options_.group.begin());
  }
  ShmProbeResult share(std::optional<ShmSegment> segment, std::vector<int> ranks, bool need_few_sockets) const;

  const ShmProbeOptions& options_;
  SegmentLayout layout_;
  std::map<int, SealedMessages> messages_;  // by rank
};

Result<ShmProbeResult> Probe::lead() {
  ProbeOffer offer;
  offer.n_bytes = layout_.n_bytes();
  if (Status filled = fill_random(offer.nonce); !filled.ok()) return filled;
  auto made = ShmSegment::create_part(layout_.n_bytes(), layout_.owned_by(0), options_.folder);
  if (!made.ok()) {
    warn(options_.group, made.status().message());
    offer.reason = made.status().message();
    Status sent = send_to_all(encode(offer));
    return sent.ok() ? Result<ShmProbeResult>(ShmProbeResult{}) : sent;
  }
  std::optional<ShmSegment> segment(std::move(made).value());
  offer.path = segment->path();
  put(layout_.probe(segment->memory(), layout_.n_members()), offer.nonce);
  if (Status sent = send_to_all(encode(offer)); !sent.ok()) return give_up(sent);
  std::vector<int> sharing = {options_.rank};
  bool need_few_sockets = options_.needs_few_sockets;
  for (const int rank : followers()) {
    auto answer = receive(rank, &decode_answer);
    if (!answer.ok()) return give_up(answer.status());
    const ProbeAnswer& received = answer.value();
    need_few_sockets = need_few_sockets && received.needs_few_sockets;
    if (received.ok && holds(layout_.probe(segment->memory(), index_of(rank)), received.nonce)) {
      sharing.push_back(rank);
    } else {
      warn({rank}, received.ok ? "its memory is not ours although the host ids are equal" : received.reason);
    }
  }
  segment->release_path();
  if (sharing.size() == 1) sharing.clear();
  const ProbeVerdict verdict{{sharing.begin(), sharing.end()}, "", need_few_sockets};
  // The mesh will detect a member that is lost by now: for the others, the probe is complete.
  if (Status sent = send_to_all(encode(verdict)); !sent.ok() && sent.kind() != ErrorKind::kRanksLost) return sent;
  return share(std::move(segment), std::move(sharing), need_few_sockets);
}

Result<ShmProbeResult> Probe::follow() {
  auto offer = receive(leader(), &decode_offer);
  if (!offer.ok()) return offer.status();
  if (offer.value().path.empty()) return ShmProbeResult{};
  std::optional<ShmSegment> segment;
  const ProbeAnswer answer = try_offer(offer.value(), segment);
  if (Status sent = send(leader(), encode(answer)); !sent.ok()) return sent;
  auto verdict = receive(leader(), &decode_verdict);
  if (!verdict.ok()) return verdict.status();
  if (!verdict.value().failure.empty()) {
    return Status::ranks_lost(verdict.value().failure + " (so says " + options_.name(leader()) + ")");
  }
  std::vector<int> sharing;
  for (const std::uint32_t rank : verdict.value().ranks) {
    sharing.push_back(static_cast<int>(rank));
    if (index_of(sharing.back()) == layout_.n_members()) {
      return named(leader(), Status::internal("counts a rank of another host among those that share memory"));
    }
  }
  const bool included = std::find(sharing.begin(), sharing.end(), options_.rank) != sharing.end();
  if (!included) return ShmProbeResult{};
  if (!segment) return named(leader(), Status::internal("thinks that memory is shared which is not"));
  return share(std::move(segment), std::move(sharing), verdict.value().need_few_sockets);
}

// Sets the segment only if the answer is ok.
ProbeAnswer Probe::try_offer(const ProbeOffer& offer, std::optional<ShmSegment>& segment) const {
  ProbeAnswer answer;
  answer.needs_few_sockets = options_.needs_few_sockets;
  if (offer.n_bytes != layout_.n_bytes()) {
    answer.reason = "it expects another size of shared memory (is CIRANDA_SLOT_BYTES the same on all ranks?)";
    return answer;
  }
  auto opened = ShmSegment::open(offer.path, offer.n_bytes, layout_.owned_by(index_of(options_.rank)));
  if (!opened.ok()) {
    answer.reason = opened.status().message();
    return answer;
  }
  if (!holds(layout_.probe(opened.value().memory(), layout_.n_members()), offer.nonce)) {
    answer.reason = "what it finds at " + offer.path + " is other memory";
    return answer;
  }
  if (Status filled = fill_random(answer.nonce); !filled.ok()) {
    answer.reason = filled.message();
    return answer;
  }
  put(layout_.probe(opened.value().memory(), index_of(options_.rank)), answer.nonce);
  segment.emplace(std::move(opened).value());
  answer.ok = true;
  return answer;
}

// Sends to all members, even if one is lost. Returns the first failure.
Status Probe::send_to_all(std::span<const std::byte> message) {
  Status first;
  for (const int rank : followers()) {
    Status sent = send(rank, message);
    if (first.ok()) first = std::move(sent);
  }
  return first;
}

// Reports the reason, because otherwise the members would blame the leader, whose connections close when it gives up.
Status Probe::give_up(const Status& why) {
  (void)send_to_all(encode(ProbeVerdict{{}, why.message()}));
  return why;
}

template <typename Message>
Result<Message> Probe::receive(int rank, Result<Message> (*decode)(std::span<const std::byte>)) {
  auto bytes = receive_message(options_.control(rank).fd.get(), messages_.at(rank), kMostProbeBytes, options_.limit);
  if (!bytes.ok()) return named(rank, bytes.status());
  auto message = decode(bytes.value());
  return message.ok() ? std::move(message) : Result<Message>(named(rank, message.status()));
}

void Probe::warn(const std::vector<int>& ranks, const std::string& reason) const {
  std::string who;
  for (const int rank : ranks) who += (who.empty() ? "" : ", ") + options_.name(rank);
  options_.warn(who + ": no shared memory with the other ranks of the host, TCP is used instead, which is slower: " +
                reason + kRemedy);
}

ShmProbeResult Probe::share(std::optional<ShmSegment> segment, std::vector<int> ranks, bool need_few_sockets) const {
  ShmProbeResult result;
  if (!ranks.empty()) {
    result.shared.emplace(SharedMemory{std::move(*segment), layout_, options_.group});
    result.ranks = std::move(ranks);
    result.needs_few_sockets = need_few_sockets;
  }
  return result;
}

}  // namespace

Result<ShmProbeResult> probe_shared_memory(const ShmProbeOptions& options) {
  Probe probe(options);
  return options.rank == options.group.front() ? probe.lead() : probe.follow();
}

}  // namespace ciranda
