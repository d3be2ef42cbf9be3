#include "backend/cuda/nccl.hpp"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

namespace ciranda::cuda {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kInPackages = "nvidia/nccl/lib/libnccl.so.2";
// Of our own file in the folder of packages: ciranda/lib/libciranda.so, ciranda/_core.abi3.so.
constexpr int kMostFoldersUp = 3;

struct NcclFunction {
  const char* name;
  void* where;  // a pointer to a function of NCCL's type
};

auto rows_of(NcclFunctions& to) {
  return std::to_array<NcclFunction>({
      {"ncclGetVersion", &to.ncclGetVersion},
      {"ncclGetErrorString", &to.ncclGetErrorString},
      {"ncclGetLastError", &to.ncclGetLastError},
      {"ncclGetUniqueId", &to.ncclGetUniqueId},
      {"ncclCommInitRankConfig", &to.ncclCommInitRankConfig},
      {"ncclCommGetAsyncError", &to.ncclCommGetAsyncError},
      {"ncclCommFinalize", &to.ncclCommFinalize},
      {"ncclCommDestroy", &to.ncclCommDestroy},
      {"ncclCommAbort", &to.ncclCommAbort},
      {"ncclGroupStart", &to.ncclGroupStart},
      {"ncclGroupEnd", &to.ncclGroupEnd},
      {"ncclAllReduce", &to.ncclAllReduce},
      {"ncclReduce", &to.ncclReduce},
      {"ncclReduceScatter", &to.ncclReduceScatter},
      {"ncclAllGather", &to.ncclAllGather},
      {"ncclBroadcast", &to.ncclBroadcast},
      {"ncclSend", &to.ncclSend},
      {"ncclRecv", &to.ncclRecv},
  });
}
using Rows = decltype(rows_of(std::declval<NcclFunctions&>()));
static_assert(std::tuple_size_v<Rows> * sizeof(void*) == sizeof(NcclFunctions), "a row for each function");

std::string text_of(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string what_is_needed() {
  return "NCCL " + text_of(kOldestNccl) + " or newer is needed: pip install nvidia-nccl-cu13 (or -cu12), as torch does";
}

Status refused_nccl(std::string why) { return Status::invalid_argument(std::move(why) + ". " + what_is_needed()); }

// The file in which an object of this process lies.
std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The package of NCCL that is installed in the same folder as ours, whoever has loaded us.
std::string beside_us() {
  std::error_code failed;
  const std::filesystem::path own = std::filesystem::canonical(file_of(&kSoname), failed);
  std::filesystem::path folder = own.parent_path();
  for (int up = 0; !failed && up < kMostFoldersUp; ++up, folder = folder.parent_path()) {
    const std::filesystem::path file = folder / kInPackages;
    if (std::filesystem::exists(file, failed)) return file;
  }
  return "";
}

void* already_loaded() { return dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD); }

struct Opened {
  void* library;
  std::string path;
};

Opened opened(void* library) {
  void* const function = library == nullptr ? nullptr : dlsym(library, "ncclGetVersion");
  return {library, function == nullptr ? std::string(kSoname) : file_of(function)};
}

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code failed;
  return std::filesystem::equivalent(one, other, failed);
}

Result<Opened> find(const std::string& named) {
  const Opened loaded = opened(already_loaded());
  if (loaded.library != nullptr) {
    if (named.empty() || is_same_file(named, loaded.path)) return loaded;
    return Status::invalid_argument("CIRANDA_NCCL names " + named + ", but this process has loaded " + loaded.path +
                                    ", and two would not get on: unset it, or load the other first");
  }
  const std::string package = named.empty() ? beside_us() : named;
  void* const library = dlopen(package.empty() ? kSoname : package.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return opened(library);
  const char* const why = dlerror();
  return refused_nccl("NCCL was not found: " + std::string(why == nullptr ? "" : why));
}

Result<int> version_of(const Opened& found) {
  NcclFunctions functions{};
  void* const function = dlsym(found.library, "ncclGetVersion");
  std::memcpy(&functions.ncclGetVersion, &function, sizeof function);  // POSIX: a pointer to a function fits
  int version = 0;
  if (function == nullptr || functions.ncclGetVersion(&version) != ncclResult_t::kSuccess || version <= 0) {
    return refused_nccl(found.path + " tells no version (ncclGetVersion): it is damaged, or no NCCL");
  }
  return version;
}

Result<NcclFunctions> functions_of(const Opened& found, int version) {
  if (version < kOldestNccl) return refused_nccl("NCCL " + text_of(version) + " (" + found.path + ") is too old");
  NcclFunctions functions{};
  std::string missing;
  for (const NcclFunction& each : rows_of(functions)) {
    void* const function = dlsym(found.library, each.name);
    std::memcpy(each.where, &function, sizeof function);
    if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(each.name);
  }
  if (missing.empty()) return functions;
  return refused_nccl("NCCL " + text_of(version) + " (" + found.path + ") has no " + missing);
}

FoundNccl found_at(const Opened& at) {
  const Result<int> version = version_of(at);
  if (!version.ok()) return {0, at.path, version.status()};
  return {version.value(), at.path, functions_of(at, version.value()).status()};
}

}  // namespace

Result<const Nccl*> Nccl::load(const std::string& named) {
  static const Result<Nccl> opened = open(named);
  if (!opened.ok()) return opened.status();
  return &opened.value();
}

Result<Nccl> Nccl::open(const std::string& named) {
  Result<Opened> found = find(named);
  if (!found.ok()) return found.status();
  const Result<int> version = version_of(found.value());
  if (!version.ok()) return version.status();
  const Result<NcclFunctions> functions = functions_of(found.value(), version.value());
  if (!functions.ok()) return functions.status();
  return Nccl(functions.value(), version.value(), std::move(found).value().path);
}

std::string Nccl::text() const { return "NCCL " + text_of(version_) + " (" + path_ + ")"; }

Status Nccl::check(ncclResult_t outcome, std::string_view call) const {
  if (outcome == ncclResult_t::kSuccess || outcome == ncclResult_t::kInProgress) return Status::ok_status();
  const char* const text = ncclGetErrorString(outcome);
  const char* const last = ncclGetLastError(nullptr);
  std::string message = std::string(call) + " of " + this->text() + " failed: " + (text == nullptr ? "no text" : text);
  if (last != nullptr && *last != '\0') message += ", " + std::string(last);
  return Status::internal(std::move(message));
}

}  // namespace ciranda::cuda

namespace ciranda {

FoundNccl find_nccl(const std::string& named) {
  const Result<cuda::Opened> found = cuda::find(named);
  return found.ok() ? cuda::found_at(found.value()) : FoundNccl{.usable = found.status()};
}

std::optional<FoundNccl> loaded_nccl() {
  const cuda::Opened loaded = cuda::opened(cuda::already_loaded());
  return loaded.library == nullptr ? std::nullopt : std::optional(cuda::found_at(loaded));
}

}  // namespace ciranda
