#include <algorithm>
#include <vector>

#include "base/copy_bytes.hpp"
#include "base/round_up.hpp"
#include "collective/launch.hpp"
#include "collective/region_pieces.hpp"
#include "collective/slices.hpp"

namespace ciranda {
namespace {

class TwoShot final : public RunningCollective {
 public:
  explicit TwoShot(const Launch& launch)
      : session_(*launch.session),
        plan_(launch.plan),
        contributors_(plan_.contributors_of(session_.n_members())),
        chunk_bytes_(launch.segment_bytes),
        n_chunks_(divide_up(plan_.n_bytes, chunk_bytes_)),
        first_chunk_(session_.take(n_chunks_)),
        regions_(session_, plan_),
        inputs_(contributors_.size()) {}

  Progress step() override {
    if (n_unpacked_ == n_chunks_) return Progress::kDone;
    if (!are_regions_known_ && n_packed_ > 0 && session_.have_all(Counter::kPacked, first_chunk_)) {
      regions_.read();
      are_regions_known_ = true;
    }
    if (regions_.are_all_shared()) return step_in_place();
    if (n_packed_ < n_chunks_ && session_.is_slot_free(first_chunk_ + n_packed_)) {
      pack(n_packed_++);
    } else if (n_reduced_ < n_packed_ && are_regions_known_ &&
               session_.have_all(Counter::kPacked, first_chunk_ + n_reduced_)) {
      reduce(n_reduced_++);
    } else if (n_unpacked_ < n_reduced_ && is_readable(n_unpacked_)) {
      unpack(n_unpacked_++);
    } else {
      return Progress::kStuck;
    }
    return n_unpacked_ == n_chunks_ ? Progress::kDone : Progress::kMoved;
  }

  std::vector<int> awaited() const override {
    if (regions_.are_all_shared()) return session_.lacking(Counter::kReduced, last_chunk());
    if (n_unpacked_ < n_reduced_) return session_.lacking(Counter::kReduced, first_chunk_ + n_unpacked_);
    if (n_reduced_ < n_packed_) return session_.lacking(Counter::kPacked, first_chunk_ + n_reduced_);
    return session_.holding_slot(first_chunk_ + n_packed_);
  }

 private:
  using Counter = ArenaSession::Counter;

  std::uint64_t last_chunk() const { return first_chunk_ + n_chunks_ - 1; }

  // Each rank reduces its slice of the whole tensor in place, and writes it to all outputs: no slots, no chunks.
  Progress step_in_place() {
    const Slice own = slice_of(plan_.n_bytes, session_.n_members(), session_.member());
    if (n_bytes_in_place_ < own.n_bytes) {
      const std::size_t n_bytes = std::min(chunk_bytes_, own.n_bytes - n_bytes_in_place_);
      reduce_in_place(own.offset + n_bytes_in_place_, n_bytes);
      n_bytes_in_place_ += n_bytes;
      if (n_bytes_in_place_ < own.n_bytes) return Progress::kMoved;
    }
    if (!session_.has(session_.member(), Counter::kReduced, last_chunk())) {
      session_.publish(Counter::kPacked, last_chunk());
      session_.publish(Counter::kReduced, last_chunk());
      return Progress::kMoved;
    }
    if (!session_.have_all(Counter::kReduced, last_chunk())) return Progress::kStuck;
    session_.publish(Counter::kConsumed, last_chunk());
    regions_.finish();
    n_unpacked_ = n_chunks_;
    return Progress::kDone;
  }

  // Works in blocks that are still in the cache when they are copied to the other members.
  void reduce_in_place(std::size_t offset, std::size_t n_bytes) {
    constexpr std::size_t kBlock = 32 << 10;
    for (const std::size_t end = offset + n_bytes; offset < end;) {
      const std::size_t n = regions_.in_one_piece(offset, std::min(kBlock, end - offset));
      for (std::size_t k = 0; k < inputs_.size(); ++k) inputs_[k] = regions_.at(contributors_[k], offset);
      std::byte* result = regions_.at(session_.member(), offset);
      kernels::reduce(plan_, inputs_, {result, n});
      for (int member = 0; member < session_.n_members(); ++member) {
        if (member != session_.member()) copy_bytes(regions_.at(member, offset), result, n);
      }
      offset += n;
    }
  }

  static constexpr std::size_t kBlockBytes = 16 << 10;  // a multiple of every element's size; stays in the caches

  Slice chunk_range(std::size_t i) const { return block_of(plan_.n_bytes, chunk_bytes_, i); }
  // A member's slice of chunk i, relative to the chunk.
  Slice slice(std::size_t i, int member) const {
    return slice_of(chunk_range(i).n_bytes, session_.n_members(), member);
  }

  bool receives() const { return plan_.output.n_bytes() > 0; }
  // A rank that receives no result has read all that it needs once it has reduced its slice.
  bool is_readable(std::size_t i) const {
    return !receives() || session_.have_all(Counter::kReduced, first_chunk_ + i);
  }

  void pack(std::size_t i) {
    if (plan_.input.n_bytes() > 0 && !regions_.is_own_shared()) pack_input(i);
    session_.publish(Counter::kPacked, first_chunk_ + i);
  }

  void pack_input(std::size_t i) {
    const std::size_t offset = chunk_range(i).offset;
    for (int member = 0; member < session_.n_members(); ++member) {
      const Slice part = slice(i, member);
      const bool is_read_in_place =
          member == session_.member() && !plan_.input.contiguous(offset + part.offset, part.n_bytes).empty();
      if (is_read_in_place) continue;
      const std::span slot(session_.own_slot(first_chunk_ + i) + part.offset, part.n_bytes);
      // kHere: with two members, this one has read the last result from there.
      gather_for_others(plan_.input, offset + part.offset, slot, ReadLast::kHere);
    }
  }

  // Reduces straight into the slot, over one of the inputs, and copies the result on while it is in the cache.
  void reduce(std::size_t i) {
    const Slice own = slice(i, session_.member());
    std::byte* in_slot = result_of(session_.member(), i) + own.offset;
    const std::size_t offset = chunk_range(i).offset + own.offset;
    for (std::size_t done = 0; done < own.n_bytes;) {
      const std::size_t n = regions_.in_one_piece(offset + done, std::min(own.n_bytes - done, kBlockBytes));
      for (std::size_t k = 0; k < inputs_.size(); ++k) {
        const std::byte* in_region = regions_.at(contributors_[k], offset + done);
        inputs_[k] = in_region != nullptr ? in_region : input_of(contributors_[k], i, own) + done;
      }
      kernels::reduce(plan_, inputs_, {in_slot + done, n});
      if (receives()) scatter(plan_.output, offset + done, {in_slot + done, n});
      done += n;
    }
    session_.publish(Counter::kReduced, first_chunk_ + i);
  }

  // A member writes its slice of the result over the next member's input for that slice. No other member reads that
  // input, and its lines are in this member's caches, which has just read them. So each of two members writes to the
  // lines that it has read last.
  std::byte* result_of(int member, std::size_t i) const {
    return session_.slot((member + 1) % session_.n_members(), first_chunk_ + i);
  }

  // A member's input for this rank's slice of chunk i.
  const std::byte* input_of(int member, std::size_t i, const Slice& own) const {
    if (member == session_.member()) {
      const auto in_place = plan_.input.contiguous(chunk_range(i).offset + own.offset, own.n_bytes);
      if (!in_place.empty()) return in_place.data();
    }
    return session_.slot(member, first_chunk_ + i) + own.offset;
  }

  void unpack(std::size_t i) {
    if (receives()) unpack_output(i);
    session_.publish(Counter::kConsumed, first_chunk_ + i);
  }

  void unpack_output(std::size_t i) {
    const std::size_t offset = chunk_range(i).offset;
    for (int step = 1; step < session_.n_members(); ++step) {  // rotated: not all begin with the same slot
      const int member = (session_.member() + step) % session_.n_members();
      const Slice part = slice(i, member);
      scatter(plan_.output, offset + part.offset, {result_of(member, i) + part.offset, part.n_bytes});
    }
  }

  ArenaSession& session_;
  const Plan& plan_;
  std::vector<int> contributors_;
  std::size_t chunk_bytes_;
  std::size_t n_chunks_;
  std::uint64_t first_chunk_;
  RegionPieces regions_;
  bool are_regions_known_ = false;
  std::size_t n_bytes_in_place_ = 0;  // of this rank's slice
  std::vector<const std::byte*> inputs_;
  std::size_t n_packed_ = 0;
  std::size_t n_reduced_ = 0;
  std::size_t n_unpacked_ = 0;
};

}  // namespace

std::unique_ptr<RunningCollective> shm_allreduce_two_shot(const Launch& launch) {
  return std::make_unique<TwoShot>(launch);
}

}  // namespace ciranda
