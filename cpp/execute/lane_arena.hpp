// LaneArena: the shared memory of one lane's members, created when the lane first has data to move. (The world's first
// lane has an arena from the start.)
//
// Each member knows only whether it shares memory with all others, so members exchange that. The first member creates
// the memory and sends its location; the others open it and report success. This is work of the lane's first entry, so
// it happens at the same position of the log on all members. If any step fails, the lane goes on without an arena, and
// the rank that knows the reason warns.
//
// Called by DataPlane; one thread (the holder of the progress lock). Owns this rank's mapping; the memory is freed with
// the last mapping.
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

  // Returns work that creates the arena, or finds that there is none, and then continues with the work of `next`. This
  // object outlives the work and is not moved.
  Work settle(std::function<Result<Work>()> next);

  // Null if there is none, or if that is not settled yet.
  SharedArena* arena() { return arena_ ? &*arena_ : nullptr; }

 private:
  std::size_t n_bytes() const;
  std::vector<ShmExtent> owned() const;
  bool offer(std::vector<std::uint64_t>& sent);
  bool open_at(const std::string& path, std::uint64_t secret);
  Status found_at(const std::string& path, std::uint64_t secret);
  void warn(const Status& why) const;
  Result<Work> open_offer();
  Result<Work> attach();
  Result<Work> end();
  std::uint64_t received(int member, std::size_t number) const;

  const Mesh& mesh_;
  std::size_t slot_bytes_;
  const Logger& logger_;
  std::function<Result<Work>()> next_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::optional<ShmSegment> segment_;
  std::optional<SharedArena> arena_;
};

}  // namespace ciranda
