// SmallFileSystem: a tmpfs of a mebibyte, or a few, for tests of what happens where there is too little room. Making
// one needs root.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/unique_fd.hpp"

namespace ciranda {

class SmallFileSystem {
 public:
  explicit SmallFileSystem(int n_mebibytes = 1) {
    const std::string size = "size=" + std::to_string(n_mebibytes) + "m";
    is_there_ = mkdtemp(folder_.data()) != nullptr && mount("tmpfs", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallFileSystem() {
    if (is_there_) umount2(folder_.c_str(), MNT_DETACH);
    rmdir(folder_.c_str());
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;

  bool is_there() const { return is_there_; }
  const std::string& folder() const { return folder_; }

  // Takes so many bytes of it away, for as long as it is there. False if there are not so many.
  bool occupy(std::size_t n_bytes) {
    other_file_ = UniqueFd(open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    return posix_fallocate(other_file_.get(), 0, static_cast<off_t>(n_bytes)) == 0;
  }

 private:
  std::string folder_ = ::testing::TempDir() + "/ciranda_small_XXXXXX";
  bool is_there_ = false;
  UniqueFd other_file_;
};

}  // namespace ciranda
