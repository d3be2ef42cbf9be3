// Engine::allocate_shared: shared memory for tensors, which the ranks of a host combine in place, without a copy
// (SharedRegions). If memory cannot be shared (several hosts, no room in /dev/shm), all ranks get private memory
// instead. It fails as the collectives that it uses do.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fill_random.hpp"
#include "base/round_up.hpp"
#include "engine/engine.hpp"
#include "transport/shared_regions.hpp"
#include "transport/shm_segment.hpp"

namespace ciranda {
namespace {

using Nonce = std::array<std::byte, 32>;

// A rank's message to the others about its memory: the path of a new region, which contains the nonce; or `is_known`,
// if the others have mapped the region already. With neither, the rank has no memory.
struct Offer {
  std::uint64_t region = 0;
  std::uint64_t n_bytes = 0;
  std::uint64_t is_known = 0;
  Nonce nonce{};
  std::array<char, 128> path{};
  std::array<std::uint64_t, 16> dropped{};  // regions that need not be mapped any longer
  std::uint64_t n_dropped = 0;
};
static_assert(std::is_trivially_copyable_v<Offer>);

// A new region is as large as all regions before it together, between these limits. It has room for many tensors, so
// mappings and descriptors stay few. A large tensor has a region of its own.
constexpr std::size_t kLeastRegionBytes = 256U << 10;
constexpr std::size_t kMostRegionBytes = 64U << 20;
constexpr std::size_t kPageBytes = 4096;
// No address space has more. A larger number would wrap when it is rounded up.
constexpr std::size_t kMostBytes = SIZE_MAX / 2;

// Creates a region of this rank, with the nonce in it. Null if there is no room.
std::shared_ptr<ShmSegment> make_segment(std::size_t n_bytes, Offer& offer) {
  Result<ShmSegment> made = ShmSegment::create(n_bytes);
  if (!made.ok() || made.value().path().size() >= offer.path.size() || !fill_random(offer.nonce).ok()) return nullptr;
  auto segment = std::make_shared<ShmSegment>(std::move(made).value());
  std::copy(offer.nonce.begin(), offer.nonce.end(), segment->memory().begin());
  std::copy(segment->path().begin(), segment->path().end(), offer.path.begin());
  offer.n_bytes = n_bytes;
  return segment;
}

std::optional<ShmSegment> open_segment(const Offer& offer) {
  const auto end = std::find(offer.path.begin(), offer.path.end(), '\0');
  if (end == offer.path.begin() || end == offer.path.end() || offer.n_bytes < offer.nonce.size()) return std::nullopt;
  Result<ShmSegment> opened = ShmSegment::open(std::string(offer.path.begin(), end), offer.n_bytes);
  if (!opened.ok()) return std::nullopt;
  const bool is_it = std::equal(offer.nonce.begin(), offer.nonce.end(), opened.value().memory().begin());
  return is_it ? std::optional(std::move(opened).value()) : std::nullopt;
}

// Returns the offers of all ranks, in rank order; fewer if ranks have joined.
Result<std::vector<Offer>> exchange(Engine& engine, const Offer& offer, const Engine::Interrupted& interrupted) {
  const auto mine = std::make_shared<const Offer>(offer);
  constexpr std::array<std::int64_t, 1> kShape{sizeof(Offer)};
  const CallTensor tensor{DataType::kUInt8, kShape, {reinterpret_cast<const std::byte*>(mine.get()), nullptr}};
  Call call{{.collective = Collective::kAllgather}};
  call.is_cacheable = false;
  call.tensors = {&tensor, 1};
  call.hints.is_awaited = true;
  // The operation keeps its input alive, since the wait may be given up.
  const Engine::OperationPtr operation = engine.submit(call, [mine](const Operation&) {});
  if (Status status = engine.wait(operation, interrupted); !status.ok()) return status;
  const OutputBuffer& all = operation->outputs().front();
  std::vector<Offer> offers(all.n_bytes / sizeof(Offer));
  std::memcpy(offers.data(), all.data.get(), offers.size() * sizeof(Offer));
  return offers;
}

// Maps the new regions of the other ranks. Returns false if one of them cannot be mapped.
bool map_all(const Engine& engine, SharedRegions& regions, const std::vector<Offer>& offers) {
  if (offers.size() != static_cast<std::size_t>(engine.size())) return false;
  for (int rank = 0; rank < engine.size(); ++rank) {
    if (rank == engine.rank()) continue;
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    if (offer.is_known != 0) continue;
    std::optional<ShmSegment> segment = open_segment(offer);
    if (!segment) return false;
    regions.add_peer(rank, offer.region, std::move(*segment));
  }
  return true;
}

void forget_dropped(const Engine& engine, SharedRegions& regions, const std::vector<Offer>& offers) {
  if (offers.size() != static_cast<std::size_t>(engine.size())) return;
  for (int rank = 0; rank < engine.size(); ++rank) {
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < offer.n_dropped && i < offer.dropped.size(); ++i) {
      regions.forget_peer(rank, offer.dropped[i]);
    }
  }
}

// The memory becomes free for reuse when the last reference to it is released.
OutputBuffer buffer_of(const std::shared_ptr<SharedRegions>& regions, const RegionRange& range) {
  std::shared_ptr<ShmSegment> segment = regions->own(range.region);
  std::byte* data = segment->memory().data() + range.offset;
  std::memset(data, 0, range.n_bytes);
  const auto give_back = [segment, range, weak = std::weak_ptr(regions)](const std::byte*) {
    if (const auto engine_is_there = weak.lock()) engine_is_there->give_back(range);
  };
  return {std::shared_ptr<std::byte>(data, give_back), range.n_bytes, {static_cast<std::int64_t>(range.n_bytes)}};
}

// The range of this rank's tensor: in a region that all ranks have mapped already, or in a new one that they must map.
struct Space {
  std::optional<RegionRange> range;
  std::optional<std::uint64_t> made;
  bool is_there() const { return range || made; }
};

std::shared_ptr<ShmSegment> make_region_for(SharedRegions& regions, std::size_t n_bytes, Offer& offer) {
  const std::size_t n_least = round_up(std::max(n_bytes, sizeof(Nonce)), kPageBytes);
  const std::size_t usual = std::clamp(regions.n_own_bytes(), kLeastRegionBytes, kMostRegionBytes);
  if (auto segment = make_segment(std::max(n_least, usual), offer)) return segment;
  regions.drop_kept();
  return make_segment(n_least, offer);
}

// Finds space for n_bytes, and describes it in `offer`. Empty if there is no room.
Space make_space(SharedRegions& regions, std::size_t n_bytes, Offer& offer) {
  if (n_bytes > kMostBytes) return {};
  Space space{regions.take(n_bytes), std::nullopt};
  if (!space.range) {
    const std::shared_ptr<ShmSegment> segment = make_region_for(regions, n_bytes, offer);
    if (segment) space.made = offer.region = regions.add_own(segment);
  }
  offer.is_known = space.range ? 1 : 0;
  const std::vector<std::uint64_t> dropped = regions.take_dropped(offer.dropped.size());
  std::copy(dropped.begin(), dropped.end(), offer.dropped.begin());
  offer.n_dropped = dropped.size();
  return space;
}

void let_go(SharedRegions& regions, const Space& space) {
  if (space.range) regions.give_back(*space.range);
  if (space.made) regions.drop(*space.made);
}

// Returns whether every rank has space, and has mapped the regions of all others.
Result<bool> agree(Engine& engine, SharedRegions& regions, const Space& space, const Offer& offer,
                   const Engine::Interrupted& interrupted) {
  const Result<std::vector<Offer>> offers = exchange(engine, offer, interrupted);
  if (!offers.ok()) return offers.status();
  forget_dropped(engine, regions, offers.value());
  Offer verdict;
  verdict.n_bytes = space.is_there() && map_all(engine, regions, offers.value()) ? 1 : 0;
  const Result<std::vector<Offer>> verdicts = exchange(engine, verdict, interrupted);
  if (!verdicts.ok()) return verdicts.status();
  return std::all_of(verdicts.value().begin(), verdicts.value().end(),
                     [](const Offer& each) { return each.n_bytes == 1; });
}

Result<SharedAllocation> allocate_own(std::size_t n_bytes) {
  OutputBuffer buffer = allocate_output(n_bytes, {static_cast<std::int64_t>(n_bytes)});
  if (!buffer.data) return Status::internal("no memory for " + std::to_string(n_bytes) + " bytes");
  std::memset(buffer.data.get(), 0, n_bytes);
  return SharedAllocation{std::move(buffer), false};
}

}  // namespace

// Reuses a region that every rank has freed.
Result<SharedAllocation> Engine::allocate_shared(std::size_t n_bytes, const Interrupted& interrupted) {
  const std::shared_ptr<SharedRegions> regions = shared_regions();
  if (regions == nullptr) return allocate_own(n_bytes);
  Offer offer;
  Space space = make_space(*regions, n_bytes, offer);
  const Result<bool> agreed = agree(*this, *regions, space, offer, interrupted);
  if (space.made) regions->own(*space.made)->release_name();
  if (!agreed.ok() || !agreed.value()) {
    let_go(*regions, space);
    return agreed.ok() ? allocate_own(n_bytes) : Result<SharedAllocation>(agreed.status());
  }
  if (space.made) {
    regions->use(*space.made);
    space.range = regions->take(n_bytes);
    // A rank was lost meanwhile, or another thread has taken the room.
    if (!space.range) return Status::aborted("the world has ended, or another thread allocates at the same time");
  }
  return SharedAllocation{buffer_of(regions, *space.range), true};
}

}  // namespace ciranda
