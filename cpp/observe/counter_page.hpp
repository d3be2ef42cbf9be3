// CounterPage: the layout of a page with one rank's counters, which other processes read while the rank runs, and after
// its death. This file is the truth; src/ciranda/launch/page.py repeats it for readers without the engine, and
// tests/python/test_page.py compares the two by kPageFields.
//
// Every field is a word of 64 bits. Counters only grow, from 0 at the time `began_ns`; those that say "now" do not. A
// change of the layout needs another kPageVersion; readers refuse versions that they do not know.
//
// Used by Counters and ShownCalls, which alone write, InFlight, RoundsInMemory, PageMemory, Engine, world_text.hpp
// and bindings/python/tables.cc; a plain layout.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ciranda {

using CounterWord = std::atomic<std::uint64_t>;
static_assert(CounterWord::is_always_lock_free && sizeof(CounterWord) == sizeof(std::uint64_t));

inline constexpr std::uint64_t kPageMagic = 0x65676150'61726943;  // "CiraPage" in memory
inline constexpr std::uint64_t kPageVersion = 4;
inline constexpr std::size_t kPageCollectives = 16;  // by the number of the collective
inline constexpr std::size_t kPagePaths = 8;         // by the number of the path
inline constexpr std::size_t kPageSizes = 16;        // by the class of a call's size
inline constexpr std::size_t kPageAlgorithms = 16;   // in the order of their first use; calls by more are not counted
inline constexpr std::size_t kPageSets = 16;         // at a time; calls of more are not counted
inline constexpr std::size_t kPageShown = 256;       // calls in flight at a time; more are not shown
inline constexpr std::size_t kPageEnded = 16;        // of the shown ones, so many have ended, while there is room
inline constexpr std::size_t kPageRanks = 4096;      // waits for higher ranks, and links with them, are not counted

// The class of a call by the bytes of its tensors, a power of 4: class 1 has 4 to 15 bytes, the last all from 1 GiB on.
constexpr std::size_t size_class(std::size_t n_bytes) {
  return std::min((static_cast<std::size_t>(std::bit_width(n_bytes | 1U)) - 1) / 2, kPageSizes - 1);
}

// Counters of the calls of one collective and one class of sizes; a cache line.
struct CallCounters {
  CounterWord direct;     // calls that found all other ranks there: direct rounds without a wait
  CounterWord others;     // all other calls
  CounterWord failed;     // those of `others` that failed
  CounterWord n_bytes;    // of the tensors that this rank gave
  CounterWord agree_ns;   // from the submission until all ranks had agreed; estimated of some direct rounds
  CounterWord move_ns;    // from then on until the result was complete; likewise
  CounterWord unused[2];  // NOLINT(modernize-avoid-c-arrays): std::array hides the layout from offsetof
};

// Counters of the calls that one algorithm has executed; a cache line.
struct AlgorithmCounters {
  CounterWord name[3];    // NOLINT(modernize-avoid-c-arrays): at most 24 characters, filled up with zeros
  CounterWord n_calls;    // 0: nothing is known of it
  CounterWord n_bytes;    // of the tensors that this rank gave
  CounterWord move_ns;    // as above
  CounterWord unused[2];  // NOLINT(modernize-avoid-c-arrays)
};

// Counters of the calls of one process set that is not the world; a cache line.
struct SetCounters {
  CounterWord id;       // 0: the entry is free
  CounterWord n_calls;  // by any path, also those that failed
  CounterWord n_bytes;  // as above, and so are the times
  CounterWord agree_ns;
  CounterWord move_ns;
  CounterWord unused[3];  // NOLINT(modernize-avoid-c-arrays)
};

// A call in flight, or one that has ended; two cache lines. What is read is whole if `sequence` is even, and the same
// in two reads.
struct ShownCall {
  CounterWord sequence;  // odd while the entry is written
  CounterWord since_ns;  // when it was submitted; 0: the entry is free
  CounterWord ended_ns;  // when it ended; 0 before
  CounterWord kind;      // collective | outcome << 8 | path << 16 | kShownAgreed | bytes of the whole name << 32
  CounterWord place;     // process set | lane << 32
  CounterWord n_bytes;   // of the tensors that this rank gave
  CounterWord name[10];  // NOLINT(modernize-avoid-c-arrays): its first 80 bytes; what is behind its end is of others
};

// In ShownCall::kind: the ranks have agreed on the call. Its numbers of outcome and path are 0 until it has ended.
inline constexpr std::uint64_t kShownAgreed = 1U << 24U;

// Counters of the connections with one rank, or of the rings in memory that both share.
struct LinkCounters {
  CounterWord n_sent;      // bytes that have arrived there, with all that is sent beside the tensors
  CounterWord n_received;  // bytes
  CounterWord n_retries;   // segments that TCP has sent again
  CounterWord n_queued;    // now: bytes that were written, and have not arrived there
};

struct alignas(64) CounterPage {
  CounterWord magic;
  CounterWord version;
  CounterWord generation;  // odd while a world begins: what is read meanwhile is torn
  CounterWord pid;
  CounterWord rank;
  CounterWord size;                                  // of the world
  CounterWord began_ns;                              // when the world began; times are those of CLOCK_MONOTONIC
  CounterWord steps;                                 // of training
  CounterWord last_step_ns;                          // when the last one ended; 0 before
  CounterWord n_waiting;                             // calls on which the ranks have not agreed yet
  CounterWord waiting_ns;                            // since when there has been one; 0 without
  CounterWord waited_ns;                             // how long there was at least one, until the last wait ended
  CounterWord stalls;                                // warnings that ranks had waited for long
  CounterWord slot_bytes;                            // now: this rank's part of memory that ranks share for transfers
  CounterWord kept_bytes;                            // now: memory of results that is kept for later ones
  CounterWord empty_bytes;                           // now: memory for tensors that other ranks have mapped
  CounterWord n_in_flight;                           // now: calls that have not ended; longer ones than direct rounds
  CounterWord shown_used;                            // `shown` has had no call from this entry on
  CounterWord unused[6];                             // NOLINT(modernize-avoid-c-arrays)
  CounterWord paths[kPagePaths];                     // NOLINT(modernize-avoid-c-arrays): `others` by path
  CallCounters calls[kPageCollectives][kPageSizes];  // NOLINT(modernize-avoid-c-arrays)
  AlgorithmCounters algorithms[kPageAlgorithms];     // NOLINT(modernize-avoid-c-arrays)
  SetCounters sets[kPageSets];                       // NOLINT(modernize-avoid-c-arrays)
  // By the rank that arrived last: how long this rank has waited for it in direct rounds.
  CounterWord own_waits_ns[kPageRanks];  // NOLINT(modernize-avoid-c-arrays)
  // By the rank that reported a call last: how long the first rank to report it had waited. Of calls that this rank
  // coordinates.
  CounterWord held_up_ns[kPageRanks];  // NOLINT(modernize-avoid-c-arrays)
  LinkCounters links[kPageRanks];      // NOLINT(modernize-avoid-c-arrays)
  ShownCall shown[kPageShown];         // NOLINT(modernize-avoid-c-arrays)
};

// A field, or an array of them: its offset and its length in words.
struct PageField {
  std::string_view name;
  std::size_t at;
  std::size_t n_words;
};

inline constexpr std::array kPageFields = {
    PageField{"magic", offsetof(CounterPage, magic) / 8, 1},
    PageField{"version", offsetof(CounterPage, version) / 8, 1},
    PageField{"generation", offsetof(CounterPage, generation) / 8, 1},
    PageField{"pid", offsetof(CounterPage, pid) / 8, 1},
    PageField{"rank", offsetof(CounterPage, rank) / 8, 1},
    PageField{"size", offsetof(CounterPage, size) / 8, 1},
    PageField{"began_ns", offsetof(CounterPage, began_ns) / 8, 1},
    PageField{"steps", offsetof(CounterPage, steps) / 8, 1},
    PageField{"last_step_ns", offsetof(CounterPage, last_step_ns) / 8, 1},
    PageField{"n_waiting", offsetof(CounterPage, n_waiting) / 8, 1},
    PageField{"waiting_ns", offsetof(CounterPage, waiting_ns) / 8, 1},
    PageField{"waited_ns", offsetof(CounterPage, waited_ns) / 8, 1},
    PageField{"stalls", offsetof(CounterPage, stalls) / 8, 1},
    PageField{"slot_bytes", offsetof(CounterPage, slot_bytes) / 8, 1},
    PageField{"kept_bytes", offsetof(CounterPage, kept_bytes) / 8, 1},
    PageField{"empty_bytes", offsetof(CounterPage, empty_bytes) / 8, 1},
    PageField{"n_in_flight", offsetof(CounterPage, n_in_flight) / 8, 1},
    PageField{"shown_used", offsetof(CounterPage, shown_used) / 8, 1},
    PageField{"paths", offsetof(CounterPage, paths) / 8, kPagePaths},
    PageField{"calls", offsetof(CounterPage, calls) / 8, sizeof(CounterPage::calls) / 8},
    PageField{"algorithms", offsetof(CounterPage, algorithms) / 8, sizeof(CounterPage::algorithms) / 8},
    PageField{"sets", offsetof(CounterPage, sets) / 8, sizeof(CounterPage::sets) / 8},
    PageField{"own_waits_ns", offsetof(CounterPage, own_waits_ns) / 8, kPageRanks},
    PageField{"held_up_ns", offsetof(CounterPage, held_up_ns) / 8, kPageRanks},
    PageField{"links", offsetof(CounterPage, links) / 8, sizeof(CounterPage::links) / 8},
    PageField{"shown", offsetof(CounterPage, shown) / 8, sizeof(CounterPage::shown) / 8},
};
// The words of CallCounters, LinkCounters, SetCounters and ShownCall, in their order; the last one's name follows.
inline constexpr std::array<std::string_view, 6> kPageCallFields = {"direct",  "others",   "failed",
                                                                    "n_bytes", "agree_ns", "move_ns"};
inline constexpr std::array<std::string_view, 4> kPageLinkFields = {"n_sent", "n_received", "n_retries", "n_queued"};
inline constexpr std::array<std::string_view, 5> kPageSetFields = {"id", "n_calls", "n_bytes", "agree_ns", "move_ns"};
inline constexpr std::array<std::string_view, 6> kPageShownFields = {"sequence", "since_ns", "ended_ns",
                                                                     "kind",     "place",    "n_bytes"};

}  // namespace ciranda
