// RecordChannel: one Channel over one or several connections to the same peer. It sends records, and delivers only
// bytes of records that have arrived whole and as they were sent.
//
// A record is a header (number, length, the tag of the Seal, a checksum) and at most 96 KiB. The tag covers the
// header's other fields, the bytes, and the place of the record among those of its connection. If a tag, a checksum or
// a number is wrong, or a connection ends without a last record that says so, the channel has failed: failure() says
// where, and on_failure is called, once. It delivers nothing more, but still writes, so that the peer can be told why.
//
// With several connections, each record goes over the first one found with room, so a slow or crowded link gets fewer.
// The reader takes records in the order of their numbers; early ones wait in the kernel's buffers. Small records stay
// on the first connection, and the reader then polls only that one: a large record's header says that the next may be
// on any connection.
//
// Large records are sent from the memory of the writer, unless they are encrypted, and received into that of the reader
// if it has room for the whole record and all of it has arrived; otherwise the channel holds what has arrived. What a
// writer passes as `first` is a record of its own if much follows it, so that the reader can take it by itself.
//
// A record is taken whole. The channel keeps the bytes for which the connection has no room, and sends them when an
// event says that there is room, or look_again() is called; meanwhile has_unsent() is true.
//
// Beside bytes, a channel of one connection carries notes between its users: small records in the order of the others,
// which are not among the bytes. What they say is not its concern; an empty one is a request.
//
// Called by SocketMesh, which makes it; through Channel by its callers. Threads: as Channel. If one connection ends,
// the whole channel has ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/channel.hpp"
#include "transport/keyed_socket.hpp"
#include "transport/seal.hpp"
#include "transport/tcp_channel.hpp"

namespace ciranda {

class RecordChannel final : public Channel {
 public:
  static constexpr std::size_t kRecordBytes = 64 << 10;  // the last record of a write may be half as large again
  static constexpr std::size_t kMostNoteBytes = 256;

  enum class Defect : std::uint8_t { kChanged, kCut };
  struct Failure {
    Defect defect = Defect::kChanged;
    std::size_t socket = 0;
    std::uint64_t record = 0;  // its place among those of the socket
  };

  // REQUIRES: at least one socket; the same order of sockets, and the same kind of seal, at both ends.
  // on_note is called while the channel is read.
  RecordChannel(std::vector<KeyedSocket> sockets, SealKind kind, std::function<void()> on_failure,
                std::function<void(std::span<const std::byte>)> on_note = {});

  std::size_t write_some(std::span<const std::byte> bytes) override { return write_some({}, bytes); }
  std::size_t write_some(std::span<const std::byte> first, std::span<const std::byte> second) override;
  std::size_t read_some(std::span<std::byte> bytes) override;
  ChannelState state() const override;
  bool has_unsent() const override;

  // Sends a note; false if there is no room. REQUIRES: there is one connection; at most kMostNoteBytes.
  bool note(std::span<const std::byte> bytes);
  // Sends an empty note, as soon as there is room. REQUIRES: there is one connection.
  void request();
  // Writes the last record of each connection, unless it has no room: the peer may lose what follows.
  void end();

  // Of one connection: the records that were given to the system, unless some are unsent; those that were received,
  // unless more may have arrived, but for a part of a record. The latter is a system call.
  std::optional<std::uint64_t> n_sent(std::size_t index) const;
  std::optional<std::uint64_t> n_received(std::size_t index) const;

  const std::optional<Failure>& failure() const { return failure_; }
  std::size_t n_sockets() const { return strands_.size(); }
  TcpChannel& socket(std::size_t index) { return strands_[index].socket; }
  const TcpChannel& socket(std::size_t index) const { return strands_[index].socket; }
  void on_events(std::size_t index, std::uint32_t events);
  void look_again();
  void mark_closed();

 private:
  using Bytes = std::span<const std::byte>;

  struct Header {
    std::uint32_t number = 0;        // among the records of all connections
    std::uint32_t n_bytes : 30 = 0;  // 0: the last record, unless it is a note
    std::uint32_t is_note : 1 = 0;
    std::uint32_t roams : 1 = 0;  // the next record may be on any connection, not just the first
    Seal::Tag tag{};              // of the fields above and the bytes
    std::uint32_t checksum = 0;   // of all fields above
  };
  // One connection.
  struct Strand {
    Strand(KeyedSocket from, SealKind kind)
        : socket(std::move(from.fd)),
          outgoing(make_seal(kind, from.keys.outgoing)),
          incoming(make_seal(kind, from.keys.incoming)) {}

    TcpChannel socket;
    std::unique_ptr<Seal> outgoing;
    std::unique_ptr<Seal> incoming;
    // Outgoing: the encrypted bytes of the last records, and the unsent rest of records that were taken.
    std::vector<std::byte> encrypted;
    std::vector<std::byte> unsent;
    std::size_t unsent_begin = 0;
    std::uint64_t n_sealed = 0;
    // Incoming: bytes read together with a header, and the header of a record that is not the next one yet.
    std::array<std::byte, 1024> ahead;
    std::size_t ahead_begin = 0;
    std::size_t ahead_end = 0;
    bool has_header = false;
    bool has_ended = false;
    Header header;
    std::uint64_t n_opened = 0;

    std::size_t n_ahead() const { return ahead_end - ahead_begin; }
    bool is_flushed() const { return unsent_begin == unsent.size(); }
  };

  static bool flush(Strand& strand);
  bool write_records(Bytes first, Bytes second);
  bool write_records(Strand& strand, Bytes first, Bytes second, bool is_note = false);
  void write_request();
  Header seal(Strand& strand, std::uint32_t nth, Header header, Seal::Parts parts, std::byte* out) const;
  bool look_for_header(Strand& strand);
  bool read_ahead(Strand& strand, std::size_t n_bytes);
  bool read_header(Strand& strand);
  bool take_note(Strand& strand);
  bool find_record();
  std::size_t receive(std::span<std::byte> room);
  std::size_t read_into(Strand& strand, std::span<std::byte> bytes);
  void hold(Bytes record);
  bool opens(Strand& strand, std::span<std::byte> bytes);
  void fail(const Strand& strand, Defect defect);

  std::vector<Strand> strands_;
  std::function<void()> on_failure_;
  std::function<void(Bytes)> on_note_;
  std::optional<Failure> failure_;
  // Outgoing.
  std::uint32_t n_written_ = 0;  // records
  bool may_write_to_any_ = false;
  std::size_t next_writer_ = 0;
  bool has_request_ = false;  // to send
  // Incoming: the record being read, and whether the next may be on any connection.
  std::uint32_t n_begun_ = 0;
  std::size_t reader_ = 0;
  bool is_in_record_ = false;
  bool may_arrive_by_any_ = false;
  std::vector<std::byte> held_;  // of that record, if its reader had no room for it or it has not arrived whole
  std::size_t n_held_ = 0;
  Bytes ready_;  // bytes of the last record, not delivered yet
};

}  // namespace ciranda
