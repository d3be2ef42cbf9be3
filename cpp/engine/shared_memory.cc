#include "engine/shared_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "membership/secret.hpp"
#include "transport/shm_segment.hpp"

namespace ciranda {
namespace {

using Nonce = std::array<std::byte, 32>;

// What a rank tells the others of its memory: open this, you must find the nonce in it; or you have it already.
// Neither: there is none.
struct Offer {
  std::uint64_t region = 0;
  std::uint64_t n_bytes = 0;
  std::uint64_t is_known = 0;
  Nonce nonce{};
  std::array<char, 128> path{};
};
static_assert(std::is_trivially_copyable_v<Offer>);

// One's own, with the nonce in it. None if there is no room.
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

// What each rank says, in rank order; fewer if ranks have joined.
Result<std::vector<Offer>> exchange(Engine& engine, const Offer& offer, const Engine::Interrupted& interrupted) {
  const auto mine = std::make_shared<const Offer>(offer);
  Request request;
  request.signature.collective = Collective::kAllgather;
  request.signature.tensors = {{DataType::kUInt8, {static_cast<std::int64_t>(sizeof(Offer))}}};
  request.memory = {{reinterpret_cast<const std::byte*>(mine.get()), nullptr}};
  request.is_cacheable = false;
  request.is_awaited = true;
  // The operation keeps what it reads: the wait for it may be given up.
  const Engine::OperationPtr operation = engine.submit(std::move(request), [mine](const Operation&) {});
  if (Status status = engine.wait(operation, interrupted); !status.ok()) return status;
  const OutputBuffer& all = operation->outputs().front();
  std::vector<Offer> offers(all.n_bytes / sizeof(Offer));
  std::memcpy(offers.data(), all.data.get(), offers.size() * sizeof(Offer));
  return offers;
}

// Maps what the others offer. False if that cannot be done for all.
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

// When the last that refers to it is gone, the region may serve again.
OutputBuffer buffer_of(const std::shared_ptr<SharedRegions>& regions, std::uint64_t region, std::size_t n_bytes) {
  std::shared_ptr<ShmSegment> segment = regions->own(region);
  std::byte* data = segment->memory().data();
  const auto give_back = [segment, region, weak = std::weak_ptr(regions)](const std::byte*) {
    if (const auto engine_is_there = weak.lock()) engine_is_there->give_back(region);
  };
  return {std::shared_ptr<std::byte>(data, give_back), n_bytes, {static_cast<std::int64_t>(n_bytes)}};
}

// One's own region of that size: one that was given back, or a new one. None if there is no room.
bool make_region(SharedRegions& regions, std::size_t n_bytes, Offer& offer) {
  if (const auto again = regions.take_back(n_bytes)) {
    offer.region = *again;
    offer.is_known = 1;
    return true;
  }
  std::shared_ptr<ShmSegment> segment = make_segment(n_bytes, offer);
  if (segment) offer.region = regions.add_own(segment);
  return segment != nullptr;
}

Result<SharedAllocation> allocate_own(std::size_t n_bytes) {
  OutputBuffer buffer = allocate_output(n_bytes, {static_cast<std::int64_t>(n_bytes)});
  if (!buffer.data) return Status::internal("no memory for " + std::to_string(n_bytes) + " bytes");
  std::memset(buffer.data.get(), 0, n_bytes);
  return SharedAllocation{std::move(buffer), false};
}

}  // namespace

Result<SharedAllocation> allocate_shared(Engine& engine, const std::shared_ptr<SharedRegions>& regions,
                                         std::size_t n_bytes, const Engine::Interrupted& interrupted) {
  if (regions == nullptr) return allocate_own(n_bytes);
  Offer offer;
  const bool has_region = make_region(*regions, std::max(n_bytes, sizeof(Nonce)), offer);
  Result<std::vector<Offer>> offers = exchange(engine, offer, interrupted);
  if (!offers.ok()) return offers.status();
  Offer verdict;
  verdict.n_bytes = has_region && map_all(engine, *regions, offers.value()) ? 1 : 0;
  offers = exchange(engine, verdict, interrupted);
  if (!offers.ok()) return offers.status();
  const bool is_everywhere =
      std::all_of(offers.value().begin(), offers.value().end(), [](const Offer& heard) { return heard.n_bytes == 1; });
  if (has_region) regions->own(offer.region)->release_path();
  if (has_region && !is_everywhere) regions->give_back(offer.region);
  if (!is_everywhere) return allocate_own(n_bytes);
  std::memset(regions->own(offer.region)->memory().data(), 0, n_bytes);
  regions->use(offer.region);
  return SharedAllocation{buffer_of(regions, offer.region, n_bytes), true};
}

}  // namespace ciranda
