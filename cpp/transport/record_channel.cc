#include "transport/record_channel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/socket.hpp"

namespace ciranda {
namespace {

// Records of this size or more may go over any connection.
constexpr std::size_t kLargeRecordBytes = RecordChannel::kRecordBytes / 2;
constexpr std::size_t kMostRecordBytes = RecordChannel::kRecordBytes + kLargeRecordBytes;

// The size of the next record. The last one is never small if an earlier one is large.
std::size_t next_record(std::size_t n_left) {
  return n_left <= kMostRecordBytes ? n_left : RecordChannel::kRecordBytes;
}

// The bytes of a header before one of its fields.
template <typename Header, typename Field>
std::span<const std::byte> before(const Header& header, const Field& field) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return bytes.first(static_cast<std::size_t>(std::as_bytes(std::span(&field, 1)).data() - bytes.data()));
}

}  // namespace

RecordChannel::RecordChannel(std::vector<KeyedSocket> sockets, SealKind kind, std::function<void()> on_failure,
                             std::function<void(Bytes)> on_note)
    : on_failure_(std::move(on_failure)), on_note_(std::move(on_note)) {
  strands_.reserve(sockets.size());
  for (KeyedSocket& each : sockets) {
    if (sockets.size() > 1) limit_unsent(each.fd.get(), static_cast<int>(4 * kRecordBytes));
    strands_.emplace_back(std::move(each), kind);
  }
}

ChannelState RecordChannel::state() const {
  const bool is_open = std::all_of(strands_.begin(), strands_.end(), [](const Strand& each) {
    return each.socket.state() == ChannelState::kOpen && !each.has_ended;
  });
  return is_open && !failure_ ? ChannelState::kOpen : ChannelState::kClosed;
}

void RecordChannel::on_events(std::size_t index, std::uint32_t events) {
  strands_[index].socket.on_events(events);
  flush(strands_[index]);
  write_request();
}

void RecordChannel::look_again() {
  for (Strand& each : strands_) {
    each.socket.look_again();
    flush(each);
  }
  write_request();
}

void RecordChannel::mark_closed() {
  for (Strand& each : strands_) each.socket.mark_closed();
}

void RecordChannel::fail(const Strand& strand, Defect defect) {
  if (failure_) return;
  failure_ = {defect, static_cast<std::size_t>(&strand - strands_.data()), strand.n_opened};
  on_failure_();
}

// --- outgoing

std::size_t RecordChannel::write_some(Bytes first, Bytes second) {
  if (first.size() > kLargeRecordBytes) {
    const std::size_t n = write_some({}, first);
    return n < first.size() ? n : n + write_some({}, second);
  }
  std::size_t n_taken = 0;
  while (!first.empty() || !second.empty()) {
    const Bytes next = second.first(next_record(second.size()));
    if (!write_records(first, next)) break;
    n_taken += first.size() + next.size();
    first = {};
    second = second.subspan(next.size());
  }
  return n_taken;
}

// Returns whether some connection has taken the bytes.
bool RecordChannel::write_records(Bytes first, Bytes second) {
  if (!may_write_to_any_) {
    next_writer_ = 1 % strands_.size();
    return write_records(strands_.front(), first, second);
  }
  for (std::size_t i = 0; i < strands_.size(); ++i) {
    Strand& strand = strands_[next_writer_];
    next_writer_ = (next_writer_ + 1) % strands_.size();
    if (write_records(strand, first, second)) return true;
  }
  return false;
}

// Writes them as one record, or `first` as a record of its own if the reader would not get it together with its header.
bool RecordChannel::write_records(Strand& strand, Bytes first, Bytes second, bool is_note) {
  if (!flush(strand) || !strand.socket.has_room()) return false;
  const bool is_one = first.empty() || sizeof(Header) + first.size() + second.size() <= strand.ahead.size();
  Header header;
  header.is_note = is_note;
  header.roams = second.size() >= kLargeRecordBytes;
  const bool encrypts = strand.outgoing->encrypts();
  if (encrypts) strand.encrypted.resize(std::max(strand.encrypted.size(), first.size() + second.size()));
  std::byte* const out = encrypts ? strand.encrypted.data() : nullptr;
  std::array<Header, 2> headers;
  const auto bytes_of = [](const Header& header) { return std::as_bytes(std::span(&header, 1)); };
  std::array<Bytes, 4> parts;
  if (is_one) {
    headers[0] = seal(strand, 0, header, std::array{first, second}, out);
    parts = {bytes_of(headers[0]), first, second, {}};
  } else {
    headers[0] = seal(strand, 0, {.roams = 1}, std::array{first}, out);
    headers[1] = seal(strand, 1, header, std::array{second}, encrypts ? out + first.size() : nullptr);
    parts = {bytes_of(headers[0]), first, bytes_of(headers[1]), second};
  }
  if (encrypts) {
    parts[1] = Bytes(strand.encrypted).first(first.size());
    parts[is_one ? 2 : 3] = Bytes(strand.encrypted).subspan(first.size(), second.size());
  }
  std::size_t n_sent = strand.socket.write_parts(parts);
  if (n_sent == 0) return false;
  strand.unsent.clear();
  strand.unsent_begin = 0;
  for (const Bytes part : parts) {
    const Bytes rest = part.subspan(std::min(n_sent, part.size()));
    n_sent -= part.size() - rest.size();
    strand.unsent.insert(strand.unsent.end(), rest.begin(), rest.end());
  }
  const std::uint32_t n_records = is_one ? 1 : 2;
  strand.n_sealed += n_records;
  n_written_ += n_records;
  may_write_to_any_ = header.roams != 0;
  return true;
}

// Seals a record, and returns its header. `nth`: 0 for the strand's next record, 1 for the one after it.
RecordChannel::Header RecordChannel::seal(Strand& strand, std::uint32_t nth, Header header, Seal::Parts parts,
                                          std::byte* out) const {
  std::size_t n_bytes = 0;
  for (const Bytes part : parts) n_bytes += part.size();
  header.number = n_written_ + nth;
  header.n_bytes = static_cast<std::uint32_t>(n_bytes) & 0x3fffffffU;
  const std::uint64_t sequence = strand.n_sealed + nth;
  header.tag = strand.outgoing->seal(sequence, before(header, header.tag), parts, out);
  header.checksum = strand.outgoing->checksum_of(sequence, before(header, header.checksum));
  return header;
}

// Returns whether everything was written.
bool RecordChannel::flush(Strand& strand) {
  while (!strand.is_flushed()) {
    const std::size_t n = strand.socket.write_some(std::span(strand.unsent).subspan(strand.unsent_begin));
    if (n == 0) return false;
    strand.unsent_begin += n;
  }
  return true;
}

bool RecordChannel::has_unsent() const {
  return std::any_of(strands_.begin(), strands_.end(), [](const Strand& each) { return !each.is_flushed(); });
}

bool RecordChannel::note(Bytes bytes) { return write_records(strands_.front(), {}, bytes, true); }

void RecordChannel::request() {
  has_request_ = true;
  write_request();
}

void RecordChannel::write_request() {
  if (has_request_) has_request_ = !note({});
}

void RecordChannel::end() {
  for (Strand& each : strands_) write_records(each, {}, {});
}

std::optional<std::uint64_t> RecordChannel::n_sent(std::size_t index) const {
  const Strand& strand = strands_[index];
  return strand.is_flushed() ? std::optional(strand.n_sealed) : std::nullopt;
}

// --- incoming

std::optional<std::uint64_t> RecordChannel::n_received(std::size_t index) const {
  const Strand& strand = strands_[index];
  const bool is_drained = !strand.has_header && strand.n_ahead() == 0 && strand.socket.n_unread() == 0;
  return is_drained ? std::optional(strand.n_opened) : std::nullopt;
}

std::size_t RecordChannel::read_some(std::span<std::byte> bytes) {
  std::size_t n_read = 0;
  while (n_read < bytes.size() && !failure_) {
    const std::span<std::byte> room = bytes.subspan(n_read);
    if (ready_.empty()) {
      if (!is_in_record_ && !find_record()) break;
      const bool would_be_held = n_held_ == 0 && strands_[reader_].header.n_bytes > room.size();
      if (n_read > 0 && would_be_held) break;  // the next call may have room for all of it
      const std::size_t n = receive(room);
      n_read += n;
      if (n == 0 && ready_.empty()) break;
    } else {
      const std::size_t n = std::min(room.size(), ready_.size());
      std::memcpy(room.data(), ready_.data(), n);
      ready_ = ready_.subspan(n);
      n_read += n;
    }
  }
  return n_read;
}

// Returns whether the header of the next record has arrived.
bool RecordChannel::find_record() {
  const std::size_t n_candidates = may_arrive_by_any_ ? strands_.size() : 1;
  std::size_t n_others = 0;
  for (std::size_t i = 0; i < n_candidates; ++i) {
    const std::size_t candidate = may_arrive_by_any_ ? (reader_ + 1 + i) % strands_.size() : 0;
    Strand& strand = strands_[candidate];
    if (!look_for_header(strand)) continue;
    if (strand.header.number != n_begun_) {
      ++n_others;
      continue;
    }
    strand.has_header = false;
    reader_ = candidate;
    is_in_record_ = true;
    may_arrive_by_any_ = strand.header.roams != 0;
    ++n_begun_;
    return true;
  }
  if (n_others == n_candidates) fail(strands_.front(), Defect::kChanged);  // the next record can no longer come
  return false;
}

// Returns whether the header of the strand's next record with bytes is known.
bool RecordChannel::look_for_header(Strand& strand) {
  while (!strand.has_header && !strand.has_ended) {
    if (!read_header(strand)) return false;
    const Header& header = strand.header;
    if (header.is_note != 0) {
      if (!take_note(strand)) return false;
    } else if (header.n_bytes > 0) {
      strand.has_header = true;
    } else {
      strand.has_ended = opens(strand, {});
      if (!strand.has_ended) return false;
    }
  }
  return strand.has_header;
}

// Returns whether so many bytes are there.
bool RecordChannel::read_ahead(Strand& strand, std::size_t n_bytes) {
  if (strand.n_ahead() >= n_bytes) return true;
  std::memmove(strand.ahead.data(), strand.ahead.data() + strand.ahead_begin, strand.n_ahead());
  strand.ahead_end -= strand.ahead_begin;
  strand.ahead_begin = 0;
  strand.ahead_end += strand.socket.read_some(std::span(strand.ahead).subspan(strand.ahead_end));
  if (strand.ahead_end >= n_bytes) return true;
  if (strand.socket.is_at_end()) fail(strand, Defect::kCut);
  return false;
}

// Returns whether there is one, and it is as it was sent. Of a note, all must be there.
bool RecordChannel::read_header(Strand& strand) {
  if (!read_ahead(strand, sizeof(Header))) return false;
  std::memcpy(&strand.header, strand.ahead.data() + strand.ahead_begin, sizeof(Header));
  const Header& header = strand.header;
  const bool is_past = static_cast<std::int32_t>(header.number - n_begun_) < 0;
  if (strand.incoming->checksum_of(strand.n_opened, before(header, header.checksum)) != header.checksum ||
      header.n_bytes > (header.is_note != 0 ? kMostNoteBytes : kMostRecordBytes) || is_past) {
    fail(strand, Defect::kChanged);
    return false;
  }
  if (header.is_note != 0 && !read_ahead(strand, sizeof(Header) + header.n_bytes)) return false;
  strand.ahead_begin += sizeof(Header);
  return true;
}

bool RecordChannel::take_note(Strand& strand) {
  if (strands_.size() > 1 || strand.header.number != n_begun_) {
    fail(strand, Defect::kChanged);
    return false;
  }
  const std::span<std::byte> note = std::span(strand.ahead).subspan(strand.ahead_begin, strand.header.n_bytes);
  strand.ahead_begin += note.size();
  if (!opens(strand, note)) return false;
  ++n_begun_;
  if (on_note_) on_note_(note);
  return true;
}

// Receives bytes of the current record. Returns its size if it is complete and in `room`. If it is complete elsewhere,
// its bytes are ready_.
std::size_t RecordChannel::receive(std::span<std::byte> room) {
  Strand& strand = strands_[reader_];
  const std::size_t n_bytes = strand.header.n_bytes;
  if (n_held_ == 0 && strand.n_ahead() >= n_bytes) {
    const std::span<std::byte> bytes = std::span(strand.ahead).subspan(strand.ahead_begin, n_bytes);
    strand.ahead_begin += n_bytes;
    if (opens(strand, bytes)) ready_ = bytes;
    return 0;
  }
  const bool is_in_place = n_held_ == 0 && room.size() >= n_bytes;
  if (!is_in_place && held_.size() < n_bytes) held_.resize(n_bytes);
  const std::span<std::byte> bytes = (is_in_place ? room : std::span(held_)).first(n_bytes);
  const std::size_t n = n_held_ + read_into(strand, bytes.subspan(n_held_));
  n_held_ = n < n_bytes ? n : 0;
  if (n < n_bytes) {
    if (is_in_place) hold(bytes);
    return 0;
  }
  if (!opens(strand, bytes)) return 0;
  if (is_in_place) return n_bytes;
  ready_ = bytes;
  return 0;
}

// Keeps the first n_held_ bytes of an incomplete record: its reader may pass other memory next time.
void RecordChannel::hold(Bytes record) {
  if (held_.size() < record.size()) held_.resize(record.size());
  std::copy_n(record.begin(), n_held_, held_.begin());
}

// Reads bytes of the current record, first those that were read together with its header.
std::size_t RecordChannel::read_into(Strand& strand, std::span<std::byte> bytes) {
  const std::size_t n_ahead = std::min(bytes.size(), strand.n_ahead());
  std::memcpy(bytes.data(), strand.ahead.data() + strand.ahead_begin, n_ahead);
  strand.ahead_begin += n_ahead;
  if (n_ahead == bytes.size()) return n_ahead;
  const std::span<std::byte> rest = bytes.subspan(n_ahead);
  const std::size_t n_read = strand.socket.read_some(rest, strand.ahead);
  if (n_read == 0 && strand.socket.is_at_end()) fail(strand, Defect::kCut);
  strand.ahead_begin = 0;
  strand.ahead_end = n_read - std::min(n_read, rest.size());
  return n_ahead + std::min(n_read, rest.size());
}

// Whether the current record, with these bytes, has arrived as it was sent. Decrypts them.
bool RecordChannel::opens(Strand& strand, std::span<std::byte> bytes) {
  is_in_record_ = false;
  const Header& header = strand.header;
  if (!strand.incoming->opens(strand.n_opened, before(header, header.tag), header.tag, bytes)) {
    fail(strand, Defect::kChanged);
    return false;
  }
  ++strand.n_opened;
  return true;
}

}  // namespace ciranda
