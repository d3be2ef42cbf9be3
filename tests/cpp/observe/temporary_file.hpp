// TemporaryFile: a file name that nobody else has; the file ends with the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace ciranda {

class TemporaryFile {
 public:
  TemporaryFile() : name_("/tmp/ciranda_timeline_XXXXXX") { ::close(::mkstemp(name_.data())); }
  ~TemporaryFile() { ::unlink(name_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& name() const { return name_; }
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(name_).rdbuf();
    return all.str();
  }

 private:
  std::string name_;
};

}  // namespace ciranda
