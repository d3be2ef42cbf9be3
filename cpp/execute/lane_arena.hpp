// LaneArena: memory that the members of one lane share, made when the lane first has data to move. (The world's first
// lane has one from the start.)
//
// Whether all members share memory only each of them knows for itself: they tell each other, the first makes the memory
// and says where it is, the others open it and tell whether they could. All of that is work for the lane's first entry,
// so that it happens at the same place of the log everywhere. Where anything fails the lane goes on without, and the
// rank that knows why warns.
//
// One thread (the holder of the progress lock). Ownership: this rank's mapping; the memory is gone when all lanes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "execute/work.hpp"
#include "transport/arena.hpp"
#include "transport/mesh.hpp"
#include "transport/shm_segment.hpp"

namespace ciranda {

class LaneArena {
 public:
  // Mesh and logger outlive this.
  LaneArena(const Mesh& mesh, std::size_t slot_bytes, const Logger& logger)
      : mesh_(mesh), slot_bytes_(slot_bytes), logger_(logger) {}

  // Work that settles whether there is an arena; then `next`'s. This outlives the work, unmoved.
  Work settle(std::function<Result<Work>()> next);

  // Null if there is none, or it is not settled yet.
  SharedArena* arena() { return arena_ ? &*arena_ : nullptr; }

 private:
  std::size_t n_bytes() const;
  std::vector<ShmExtent> owned() const;
  bool offer(std::vector<std::uint64_t>& told);
  bool open_at(const std::string& path, std::uint64_t secret);
  Status found_at(const std::string& path, std::uint64_t secret);
  void warn(const Status& why) const;
  Result<Work> open_offer();
  Result<Work> attach();
  Result<Work> end();
  std::uint64_t heard(int member, std::size_t number) const;

  const Mesh& mesh_;
  std::size_t slot_bytes_;
  const Logger& logger_;
  std::function<Result<Work>()> next_;
  std::vector<std::uint64_t> told_;
  std::vector<std::uint64_t> heard_;
  std::optional<ShmSegment> segment_;
  std::optional<SharedArena> arena_;
};

}  // namespace ciranda
