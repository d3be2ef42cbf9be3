#include "membership/shm_probe.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/fill_random.hpp"
#include "membership/blocking_io.hpp"
#include "membership/bootstrap_messages.hpp"
#include "membership/host_links.hpp"
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
      : options_(options),
        n_members_(static_cast<int>(options.group.size())),
        place_(place_of(options.rank)),
        layout_(n_members_, options.slot_bytes) {
    for (const int place : children_of(place_, n_members_)) children_.push_back(rank_at(place));
    for (const int rank : children_) messages_.emplace(rank, SealedMessages(options.control(rank).keys));
    if (!leads()) messages_.emplace(parent(), SealedMessages(options.control(parent()).keys));
  }

  Result<ShmProbeResult> run() {
    auto result = leads() ? lead() : follow();
    if (!result.ok()) give_up(result.status());
    return result;
  }

 private:
  bool leads() const { return place_ == 0; }
  Result<ShmProbeResult> lead();
  Result<ShmProbeResult> follow();
  Status send(int rank, std::span<const std::byte> message) {
    return named(rank, send_all(options_.control(rank).fd.get(), messages_.at(rank).seal(message), options_.limit));
  }
  Status send_down(std::span<const std::byte> message);
  Status answer(const ProbeAnswer& answer);
  Status decide(const ProbeVerdict& verdict);
  Status why_parent_gives_up();
  Status gather(const std::function<Status(const ProbeAnswer&)>& take);
  Status wait_for_some(const std::set<int>& missing, std::vector<int>& ready) const;
  void give_up(const Status& why);
  template <typename Message>
  Result<Message> receive(int rank, Result<Message> (*decode)(std::span<const std::byte>));
  Status named(int rank, const Status& status) const {
    return status.ok() ? status : Status(status.kind(), options_.name(rank) + " " + status.message());
  }
  ProbeAnswer try_offer(const ProbeOffer& offer, std::optional<ShmSegment>& segment) const;
  void warn(const std::vector<int>& ranks, const std::string& reason) const;
  int parent() const { return rank_at(parent_of(place_, n_members_)); }
  int rank_at(int place) const { return options_.group[static_cast<std::size_t>(place)]; }
  int place_of(int rank) const {
    return static_cast<int>(std::find(options_.group.begin(), options_.group.end(), rank) - options_.group.begin());
  }
  ShmProbeResult share(std::optional<ShmSegment> segment, std::vector<int> ranks, bool need_few_sockets) const;

  const ShmProbeOptions& options_;
  int n_members_;
  int place_;
  SegmentLayout layout_;
  std::vector<int> children_;               // ranks
  std::map<int, SealedMessages> messages_;  // by rank
  // What those next to this rank wait for: its children for an offer, then a verdict; its parent for answers.
  bool has_offered_ = false;
  bool has_answered_ = false;
  bool has_decided_ = false;
  bool was_told_ = false;  // by a message that another has given up
};

Result<ShmProbeResult> Probe::lead() {
  ProbeOffer offer;
  offer.n_bytes = layout_.n_bytes();
  if (Status filled = fill_random(offer.nonce); !filled.ok()) return filled;
  auto made = ShmSegment::create_part(layout_.n_bytes(), layout_.owned_by(0), options_.folder);
  if (!made.ok()) {
    warn(options_.group, made.status().message());
    offer.reason = made.status().message();
    has_decided_ = true;
    Status sent = send_down(encode(offer));
    return sent.ok() ? Result<ShmProbeResult>(ShmProbeResult{}) : sent;
  }
  std::optional<ShmSegment> segment(std::move(made).value());
  offer.path = segment->path();
  put(layout_.probe(segment->memory(), layout_.n_members()), offer.nonce);
  has_offered_ = true;
  if (Status sent = send_down(encode(offer)); !sent.ok()) return sent;
  std::set<int> sharing = {options_.rank};
  bool need_few_sockets = options_.needs_few_sockets;
  Status gathered = gather([&](const ProbeAnswer& answer) {
    const auto rank = static_cast<int>(answer.rank);
    need_few_sockets = need_few_sockets && answer.needs_few_sockets;
    if (answer.ok && holds(layout_.probe(segment->memory(), place_of(rank)), answer.nonce)) {
      sharing.insert(rank);
    } else {
      warn({rank}, answer.ok ? "its memory is not ours although the host ids are equal" : answer.reason);
    }
    return Status();
  });
  if (!gathered.ok()) return gathered;
  segment->release_path();
  if (sharing.size() == 1) sharing.clear();
  const ProbeVerdict verdict{{sharing.begin(), sharing.end()}, need_few_sockets, ""};
  if (Status sent = decide(verdict); !sent.ok()) return sent;
  return share(std::move(segment), {sharing.begin(), sharing.end()}, need_few_sockets);
}

Result<ShmProbeResult> Probe::follow() {
  auto offer = receive(parent(), &decode_offer);
  if (!offer.ok()) return offer.status();
  has_offered_ = true;
  has_decided_ = has_answered_ = offer.value().path.empty();
  if (Status sent = send_down(encode(offer.value())); !sent.ok()) return sent;
  if (has_decided_) return ShmProbeResult{};
  std::optional<ShmSegment> segment;
  if (Status sent = answer(try_offer(offer.value(), segment)); !sent.ok()) return sent;
  const auto hand_on = [this](const ProbeAnswer& each) { return answer(each); };
  if (Status gathered = gather(hand_on); !gathered.ok()) return gathered;
  has_answered_ = true;
  auto verdict = receive(parent(), &decode_verdict);
  if (!verdict.ok()) return verdict.status();
  if (Status sent = decide(verdict.value()); !sent.ok()) return sent;
  std::vector<int> sharing;
  for (const std::uint32_t rank : verdict.value().ranks) {
    sharing.push_back(static_cast<int>(rank));
    if (place_of(sharing.back()) == n_members_) {
      return named(parent(), Status::internal("counts a rank of another host among those that share memory"));
    }
  }
  const bool included = std::find(sharing.begin(), sharing.end(), options_.rank) != sharing.end();
  if (!included) return ShmProbeResult{};
  if (!segment) return named(parent(), Status::internal("thinks that memory is shared which is not"));
  return share(std::move(segment), std::move(sharing), verdict.value().need_few_sockets);
}

// Sets the segment only if the answer is ok.
ProbeAnswer Probe::try_offer(const ProbeOffer& offer, std::optional<ShmSegment>& segment) const {
  ProbeAnswer answer;
  answer.rank = static_cast<std::uint32_t>(options_.rank);
  answer.needs_few_sockets = options_.needs_few_sockets;
  if (offer.n_bytes != layout_.n_bytes()) {
    answer.reason = "it expects another size of shared memory (is CIRANDA_SLOT_BYTES the same on all ranks?)";
    return answer;
  }
  auto opened = ShmSegment::open(offer.path, offer.n_bytes, layout_.owned_by(place_));
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
  put(layout_.probe(opened.value().memory(), place_), answer.nonce);
  segment.emplace(std::move(opened).value());
  answer.ok = true;
  return answer;
}

// Sends to all children, even if one is lost. Returns the first failure.
Status Probe::send_down(std::span<const std::byte> message) {
  Status first;
  for (const int rank : children_) {
    Status sent = send(rank, message);
    if (first.ok()) first = std::move(sent);
  }
  return first;
}

Status Probe::answer(const ProbeAnswer& answer) {
  Status sent = send(parent(), encode(answer));
  return sent.ok() ? sent : why_parent_gives_up();
}

// The mesh will detect a member that is lost by now: for the others, the probe is complete.
Status Probe::decide(const ProbeVerdict& verdict) {
  has_decided_ = true;
  Status sent = send_down(encode(verdict));
  return sent.kind() == ErrorKind::kRanksLost ? Status() : sent;
}

// REQUIRES: it has something to say, or has left, before all have answered.
Status Probe::why_parent_gives_up() {
  const auto verdict = receive(parent(), &decode_verdict);
  return verdict.ok() ? named(parent(), Status::internal("decides before all have answered")) : verdict.status();
}

// Takes the answers of all ranks below this one, as they come.
Status Probe::gather(const std::function<Status(const ProbeAnswer&)>& take) {
  std::set<int> missing;
  for (int place = place_ + 1; place < n_members_; ++place) {
    if (is_below(place, place_, n_members_)) missing.insert(rank_at(place));
  }
  while (!missing.empty()) {
    std::vector<int> ready;
    if (Status waited = wait_for_some(missing, ready); !waited.ok()) return waited;
    for (const int next : ready) {
      if (!leads() && next == parent()) return why_parent_gives_up();
      auto answer = receive(next, &decode_answer);
      if (!answer.ok()) return answer.status();
      const auto rank = static_cast<int>(answer.value().rank);
      if (!is_below(place_of(rank), place_of(next), n_members_) || missing.erase(rank) == 0) {
        return named(next, Status::internal("answers for rank " + std::to_string(rank)));
      }
      if (Status taken = take(answer.value()); !taken.ok()) return taken;
    }
  }
  return {};
}

// Until a child has an answer, or the parent gives up. If none comes, one of those missing is to blame whose answer
// would not have come over another of them.
Status Probe::wait_for_some(const std::set<int>& missing, std::vector<int>& ready) const {
  std::vector<pollfd> sources;
  for (const auto& [rank, messages] : messages_) sources.push_back({options_.control(rank).fd.get(), POLLIN, 0});
  if (Status waited = wait_until_ready(sources, options_.limit); !waited.ok()) {
    const auto is_next = [&](int rank) { return !missing.contains(rank_at(parent_of(place_of(rank), n_members_))); };
    return named(*std::find_if(missing.begin(), missing.end(), is_next), waited);
  }
  auto source = sources.begin();
  for (const auto& [rank, messages] : messages_) {
    if ((source++)->revents != 0) ready.push_back(rank);
  }
  return {};
}

// Tells the reason to those that wait for this rank: otherwise they would blame it, as its connections close.
void Probe::give_up(const Status& why) {
  const std::string text = why.message() + (was_told_ ? "" : " (so says " + options_.name(options_.rank) + ")");
  ProbeOffer offer;
  offer.failure = text;
  if (!has_decided_) (void)send_down(has_offered_ ? encode(ProbeVerdict{{}, false, text}) : encode(offer));
  if (leads() || has_answered_) return;
  ProbeAnswer answer;
  answer.failure = text;
  (void)send(parent(), encode(answer));
}

template <typename Message>
Result<Message> Probe::receive(int rank, Result<Message> (*decode)(std::span<const std::byte>)) {
  auto bytes = receive_message(options_.control(rank).fd.get(), messages_.at(rank), kMostProbeBytes, options_.limit);
  if (!bytes.ok()) return named(rank, bytes.status());
  auto message = decode(bytes.value());
  if (!message.ok()) return named(rank, message.status());
  was_told_ = !message.value().failure.empty();
  if (was_told_) return Status::ranks_lost(message.value().failure);
  return message;
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

Result<ShmProbeResult> probe_shared_memory(const ShmProbeOptions& options) { return Probe(options).run(); }

}  // namespace ciranda
