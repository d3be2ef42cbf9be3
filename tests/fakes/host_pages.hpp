// HostPages: keeps the host away from pinned memory that streams still use. Pages that a queued operation writes as a
// whole have no access, those that it reads as a whole may only be read, until the host has learnt of its end. Streams
// use the memory by another mapping.
//
// Threads: one at a time (the checker's lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shadow.hpp"
#include "vector_clock.hpp"

namespace ciranda::fakes {

class HostPages {
 public:
  HostPages(std::byte* memory, std::size_t n_bytes);
  ~HostPages();  // the host may use all pages again
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // `use` reads or writes [begin, end) of the memory.
  void hold(const UseOf& use, std::size_t begin, std::size_t end, bool writes);
  // The host knows of all that `known` covers.
  void release(const VectorClock& known);
  // What keeps the host from the page at `offset`; null: nothing.
  UseOf holder_of(std::size_t offset) const;

 private:
  struct Held {
    UseOf use;
    std::size_t first;  // pages
    std::size_t last;
    bool writes;
  };
  struct Page {
    unsigned n_readers = 0;
    unsigned n_writers = 0;
  };

  static int protection_of(const Page& page);
  void count(const Held& held, int change);
  void protect(std::size_t first, std::size_t last, int protection);

  std::size_t on_pages(std::size_t offset) const { return offset > n_skipped_ ? offset - n_skipped_ : 0; }

  std::byte* first_page_;  // that lies in the memory as a whole
  std::size_t n_skipped_;  // bytes before it
  std::vector<Page> pages_;
  std::vector<Held> held_;
};

}  // namespace ciranda::fakes
