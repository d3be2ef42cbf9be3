#include "execute/lane_arena.hpp"

#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/fill_random.hpp"
#include "execute/allgather_numbers.hpp"

namespace ciranda {
namespace {

// The numbers with which the first member describes the memory that it has created. The other members only send the
// first number: whether they share memory with all members.
enum Offer : std::uint8_t { kShares, kProcess, kDescriptor, kSecret, kOfferNumbers };

}  // namespace

// The size of the arena, and of the secret after it. By the secret, a member detects that a path under /proc names
// another file: in the member's PID namespace, the process may have another number.
std::size_t LaneArena::n_bytes() const {
  return SharedArena::required_bytes(mesh_.size(), slot_bytes_) + SharedArena::kAlignment;
}

// The parts that this member allocates: its own; on the first member also the common one and the secret.
std::vector<ShmExtent> LaneArena::owned() const {
  std::vector<ShmExtent> owned{SharedArena::part(mesh_.size(), slot_bytes_, mesh_.rank())};
  if (mesh_.rank() == 0) {
    owned.push_back(SharedArena::common(mesh_.size()));
    owned.push_back({n_bytes() - SharedArena::kAlignment, SharedArena::kAlignment});
  }
  return owned;
}

std::uint64_t LaneArena::received(int member, std::size_t number) const {
  return received_[static_cast<std::size_t>(member) * sent_.size() + number];
}

Work LaneArena::settle(std::function<Result<Work>()> next) {
  next_ = std::move(next);
  sent_.assign(kOfferNumbers, 0);
  if (shares_memory_with_all(mesh_)) {
    sent_[kShares] = 1;
    if (mesh_.rank() == 0) sent_[kShares] = offer(sent_) ? 1 : 0;
  }
  return allgather_numbers(sent_, mesh_.size(), received_, [this] { return open_offer(); });
}

bool LaneArena::offer(std::vector<std::uint64_t>& sent) {
  Result<ShmSegment> made = ShmSegment::create_part(n_bytes(), owned());
  if (!made.ok()) {
    warn(made.status());
    return false;
  }
  sent[kProcess] = static_cast<std::uint64_t>(getpid());
  sent[kDescriptor] = static_cast<std::uint64_t>(made.value().descriptor());
  if (made.value().path() != ShmSegment::path_of(sent[kProcess], sent[kDescriptor])) {
    warn(Status::internal("the file system of shared memory does not support files without a name"));
    return false;
  }
  if (Status filled = fill_random(std::as_writable_bytes(std::span(&sent[kSecret], 1))); !filled.ok()) {
    warn(filled);
    return false;
  }
  segment_.emplace(std::move(made).value());
  std::memcpy(segment_->memory().data() + n_bytes() - SharedArena::kAlignment, &sent[kSecret], sizeof sent[kSecret]);
  return true;
}

Result<Work> LaneArena::open_offer() {
  for (int member = 0; member < mesh_.size(); ++member) {
    if (received(member, kShares) == 0) return end();
  }
  const bool is_open =
      mesh_.rank() == 0 ||
      open_at(ShmSegment::path_of(received(0, kProcess), received(0, kDescriptor)), received(0, kSecret));
  sent_ = {is_open ? 1U : 0U};
  return allgather_numbers(sent_, mesh_.size(), received_, [this] { return attach(); });
}

bool LaneArena::open_at(const std::string& path, std::uint64_t secret) {
  const Status found = found_at(path, secret);
  if (!found.ok()) warn(found);
  return found.ok();
}

Status LaneArena::found_at(const std::string& path, std::uint64_t secret) {
  Result<ShmSegment> opened = ShmSegment::open(path, n_bytes(), owned());
  if (!opened.ok()) return opened.status();
  std::uint64_t found = 0;
  std::memcpy(&found, opened.value().memory().data() + n_bytes() - SharedArena::kAlignment, sizeof found);
  if (found != secret) return Status::internal(path + " is other memory");
  segment_.emplace(std::move(opened).value());
  return {};
}

void LaneArena::warn(const Status& why) const {
  logger_.warning("a process set of " + std::to_string(mesh_.size()) +
                  " ranks on this host gets no memory to share, so its collectives are slower: " + why.message());
}

Result<Work> LaneArena::attach() {
  for (int member = 0; member < mesh_.size(); ++member) {
    if (received(member, 0) == 0) return end();
  }
  segment_->release_path();
  const auto memory = segment_->memory();
  arena_.emplace(memory.first(memory.size() - SharedArena::kAlignment), mesh_.size(), mesh_.rank(), slot_bytes_);
  return next_();
}

Result<Work> LaneArena::end() {
  segment_.reset();
  return next_();
}

}  // namespace ciranda
