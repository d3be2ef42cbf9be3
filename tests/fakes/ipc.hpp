// Memory of a device that several processes use: they map the same pages. The pages are found by the number of the
// process that allocated them, and gone when it has ended, but for those who have them open.
//
// Uses by several processes are not compared. A process may open its own memory if FAKE_CUDA_IPC=within, which the real
// driver refuses: then uses by both addresses are.
//
// Threads: any.
#pragma once

#include <memory>

#include "address_map.hpp"
#include "types.hpp"

namespace ciranda::fakes {

CUipcMemHandle export_range(const Range& range);

struct Import {
  CUresult outcome;
  std::shared_ptr<Range> range;
};
// What is open already is opened once more, at the same address.
Import import_range(const CUipcMemHandle& handle, CUdevice device);
// Returns the range if it was opened no more often than closed: it is about to go. Null: it stays open.
// REQUIRES: that it was imported.
std::shared_ptr<Range> close_import(const std::shared_ptr<Range>& range);
void unmap_import(const Range& range);

}  // namespace ciranda::fakes
