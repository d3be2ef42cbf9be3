// Nccl: the NCCL of this process, libnccl.so.2, found at run time: what the process has loaded, as torch does; else the
// package nvidia-nccl-cu12 or -cu13 that is installed beside ours; else the system's. CIRANDA_NCCL names one. There are
// never two in a process. One that never calls load() opens none.
//
// Threads: any. The first load() searches, the others wait for it; the answer holds for the life of the process.
// Failure: a status with the version found, the version needed, and what to do. Kind InvalidArgument.
//
// Called by NcclSettling and NcclCommunicator.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/nccl_api.hpp"
#include "backend/found_nccl.hpp"
#include "base/status.hpp"

namespace ciranda::cuda {

class Nccl : public NcclFunctions {
 public:
  // `named`: what CIRANDA_NCCL says; empty: nothing. That of the first call counts.
  static Result<const Nccl*> load(const std::string& named);

  int version() const { return version_; }
  // "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
  std::string text() const;

  // Returns ok for kSuccess and kInProgress, else an Internal error with the call, the error's text, and what NCCL says
  // of it.
  Status check(ncclResult_t outcome, std::string_view call) const;

 private:
  Nccl(const NcclFunctions& functions, int version, std::string path)
      : NcclFunctions(functions), version_(version), path_(std::move(path)) {}
  static Result<Nccl> open(const std::string& named);

  int version_;
  std::string path_;
};

}  // namespace ciranda::cuda
